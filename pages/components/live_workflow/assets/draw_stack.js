// Paints stacks of parallel steps.

import { drawCompactText, drawGlyph, fit, frame } from "./card_parts.js"
import { ranges } from "./fold.js"
import { tokens } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"
import { isolated } from "./text.js"

const PADDING = 9
const BEHIND = 3
const STATE_FROM = 70 // a lower stack has its state in its line
const TICK_HEIGHT = 5
// More steps than this have no tick each.
const MOST_TICKS = 48
const WIDE_TICKS = 16
const WORDS = { done: "done", wait: "wait", skipped: "skipped", same: "unchanged" }
const FACE = { done: "completed", wait: "waiting", skipped: "skipped", same: "completed" }

// What a stack is called, on the canvas and for a screen reader.
export function stackWords({ keys, stack }, numbers = keys) {
  return { numbers: ranges(numbers), state: `${keys.length} ${WORDS[stack.kind]}` }
}

// `steps`: those in it. `numbers`: what they are called. `totals`: their tokens.
export function drawStack(ctx, { cell, steps, numbers, totals, agentIndex, hover, theme }) {
  const { x, y, width, height, stack } = cell
  const done = stack.kind === "done" || stack.kind === "same"
  const box = stack.kind === "done" ? theme.status.done : null
  const colours = { stroke: box ? box.stroke : theme.line, fill: box ? box.fill : theme.quiet, dashed: !done }
  const size = { width: width - 2 * BEHIND, height: height - 2 * BEHIND, theme, lineWidth: 1.2, selected: false, hover }
  const [left, top] = [x - width / 2, y - height / 2]
  ctx.save()
  for (const by of [2 * BEHIND, BEHIND, 0]) frame(ctx, { left: left + by, top: top + by, ...size, ...colours })
  const { numbers: which, state } = stackWords(cell, numbers)
  const small = height < STATE_FROM
  const line = `${isolated(stack.agent)} · ${small ? state : steps[0].instruction}`
  // Of a long title the numbers stay: how many steps it is stands below.
  const titles = [`${which} · ${cell.keys.length} steps`, which]
  const text = { left, top, width: size.width, titles, agentIndex, theme }
  drawCompactText(ctx, { ...text, line, sign: small ? 17 : 0 })
  if (!small) {
    ctx.fillStyle = theme.muted
    ctx.font = `400 12px ${theme.font}`
    const said = `${STEP_STATUS[FACE[stack.kind]].glyph} ${state}${totals ? ` · ${tokens(totals)}` : ""}`
    ctx.fillText(fit(ctx, said, size.width - 2 * PADDING), left + PADDING, top + 50)
    drawTicks(ctx, { left: left + PADDING, top: top + 60, width: size.width - 2 * PADDING, steps, theme })
  } else drawGlyph(ctx, left + size.width - 14, top + 15, FACE[stack.kind], theme.muted, 0, theme)
  ctx.restore()
}

function drawTicks(ctx, { left, top, width, steps, theme }) {
  const ticks = steps.length > MOST_TICKS ? [steps[0]] : steps
  const gap = steps.length > WIDE_TICKS ? 1 : 2
  const each = (width - gap * (ticks.length - 1)) / ticks.length
  ticks.forEach((step, at) => {
    const status = shownStatus(step)
    ctx.fillStyle = theme.status[TICKS[status]]?.stroke ?? theme.line
    ctx.beginPath()
    ctx.roundRect(left + at * (each + gap), top, each, TICK_HEIGHT, Math.min(2, each / 3))
    ctx.fill()
  })
}

const TICKS = { completed: "done", reused: "reused", written: "warn" }
