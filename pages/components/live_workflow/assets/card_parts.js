// What all cards of the graph are made of: frame, dot of the agent, sign of the status, and text that is cut to fit.

import { STEP_STATUS } from "./status.js"
import { withoutTask } from "./task_words.js"
import { rightToLeft, visible } from "./text.js"

const RADIUS = 10
const SMALL_PADDING = 9
const FOOT_GAP = 8

// Paints the card's background and border, and a ring around the selected card.
export function frame(ctx, { left, top, width, height, selected, hover, theme, lineWidth, stroke, fill, dashed }) {
  ctx.beginPath()
  ctx.roundRect(left, top, width, height, RADIUS)
  if (selected) {
    ctx.save()
    ctx.strokeStyle = theme.accent
    ctx.globalAlpha *= 0.28
    ctx.lineWidth = 7
    ctx.stroke()
    ctx.restore()
  }
  ctx.fillStyle = fill
  ctx.fill()
  ctx.lineWidth = Math.max(lineWidth, selected ? 2.2 : hover ? 2 : 0)
  ctx.strokeStyle = selected ? theme.accent : stroke
  if (dashed) ctx.setLineDash([5, 4])
  ctx.stroke()
  ctx.setLineDash([])
}

export function agentDot(ctx, x, y, colour) {
  ctx.beginPath()
  ctx.arc(x, y, 4.5, 0, 2 * Math.PI)
  ctx.fillStyle = colour
  ctx.fill()
}

export function drawGlyph(ctx, x, y, status, colour, phase, theme) {
  if (status === "running") {
    // A quiet ring that turns while tokens arrive.
    ctx.lineWidth = 2
    ctx.strokeStyle = colour
    ctx.globalAlpha = 0.25
    ctx.beginPath()
    ctx.arc(x, y, 5.5, 0, 2 * Math.PI)
    ctx.stroke()
    ctx.globalAlpha = 1
    ctx.beginPath()
    ctx.arc(x, y, 5.5, phase, phase + Math.PI / 2)
    ctx.stroke()
    return
  }
  ctx.font = `600 14px ${theme.font}`
  ctx.fillStyle = colour
  ctx.textAlign = "center"
  ctx.fillText(STEP_STATUS[status].glyph, x, y + 0.5)
  ctx.textAlign = "left"
}

// Returns where the name of a compact card is: above its line, if it has one.
export const nameHeight = (height, line) => (line ? Math.min(15, height * 0.32) : height / 2)

// Paints all text of a compact card: a name (the first of `titles` that fits) and one line, in the line's reading
// direction; `struck` strikes it out. `sign`: the room that the sign takes at the right.
export function drawCompactText(
  ctx,
  { left, top, width, height, titles, line, agentIndex, theme, struck = false, sign = 17 },
) {
  const y = nameHeight(height, line)
  agentDot(ctx, left + SMALL_PADDING + 3, top + y, theme.agent(agentIndex))
  ctx.textAlign = "left"
  ctx.textBaseline = "middle"
  ctx.font = `600 13px ${theme.font}`
  ctx.fillStyle = struck ? theme.muted : theme.text
  const room = width - 2 * SMALL_PADDING - 13 - sign
  const title = titles.find((each) => fit(ctx, each, room) === each) ?? titles.at(-1)
  ctx.fillText(fit(ctx, title, room), left + SMALL_PADDING + 13, top + y + 0.5)
  if (!line) return
  ctx.font = `400 12px ${theme.font}`
  ctx.fillStyle = theme.muted
  const text = visible(withoutTask(line).slice(0, 400)).replace(/\s+/g, " ")
  const fromRight = rightToLeft(text)
  ctx.save()
  ctx.direction = fromRight ? "rtl" : "ltr"
  ctx.textAlign = "start"
  const x = fromRight ? left + width - SMALL_PADDING : left + SMALL_PADDING
  const shown = fit(ctx, text, width - 2 * SMALL_PADDING)
  ctx.fillText(shown, x, top + y + 17.5)
  if (struck) {
    const length = ctx.measureText(shown).width
    ctx.fillRect(fromRight ? x - length : x, top + y + 17, length, 1)
  }
  ctx.restore()
}

// Paints a card's last line: the first of `words` that fits, and at the right the value of its output, which is left out
// rather than cut.
export function drawFoot(ctx, { left, right, y, words, value = "", theme, colour = theme.muted }) {
  const shown = value && visible(value)
  ctx.font = `600 12px ${theme.font}`
  const taken = shown ? ctx.measureText(shown).width + FOOT_GAP : 0
  ctx.font = `400 12px ${theme.font}`
  const shortest = words.at(-1)
  const fits = shown && ctx.measureText(shortest).width + taken <= right - left
  const room = right - left - (fits ? taken : 0)
  const said = words.find((each) => ctx.measureText(each).width <= room) ?? shortest
  ctx.fillStyle = colour
  ctx.fillText(fit(ctx, said, room), left, y)
  if (!fits) return
  ctx.font = `600 12px ${theme.font}`
  ctx.fillStyle = theme.text
  ctx.textAlign = "right"
  ctx.fillText(shown, right, y)
  ctx.textAlign = "left"
}

const fitted = new Map()
const MOST_FITTED = 1000

// Returns as much of a text as fits. A frame asks for the same texts as the one before it.
export function fit(ctx, text, width) {
  const key = `${ctx.font}|${Math.round(width)}|${text}`
  if (!fitted.has(key)) {
    if (fitted.size >= MOST_FITTED) fitted.clear()
    fitted.set(key, fitNow(ctx, text, width))
  }
  return fitted.get(key)
}

function fitNow(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text
  let low = 0
  let high = text.length
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (ctx.measureText(`${text.slice(0, middle).trimEnd()}…`).width <= width) low = middle
    else high = middle - 1
  }
  return `${text.slice(0, low).trimEnd()}…`
}
