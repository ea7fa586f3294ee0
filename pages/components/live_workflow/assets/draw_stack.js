// Paints stacks of parallel steps.

import { drawCompactText, drawFoot, drawGlyph, frame } from "./card_parts.js"
import { ranges } from "./fold.js"
import { tokens } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"
import { isolated, visible } from "./text.js"

const PADDING = 9
const BEHIND = 3
const TICK_HEIGHT = 4
// More steps than this have no tick each.
const MOST_TICKS = 48
const WIDE_TICKS = 16
const WORDS = { done: "done", wait: "wait", skipped: "skipped", same: "unchanged" }
const FACE = { done: "completed", wait: "waiting", skipped: "skipped", same: "completed" }

// What a stack is called, on the canvas and for a screen reader.
export function stackWords({ keys, stack }, numbers = keys) {
  return { numbers: ranges(numbers), state: `${keys.length} ${WORDS[stack.kind]}` }
}

// Counts equal values, the most frequent first: `7 × 42, 1 × 41`. Of more than `most` kinds it counts the rest.
export function tally(values, most = 2) {
  const counts = new Map()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  const ranked = [...counts].toSorted((a, b) => b[1] - a[1])
  const said = ranked.slice(0, most).map(([value, number]) => `${number} × ${visible(value)}`)
  const rest = ranked.slice(most).reduce((sum, [, number]) => sum + number, 0)
  return [...said, ...(rest ? [`${rest} others`.replace(/^1 others$/, "1 other")] : [])].join(", ")
}

// `steps`: those in it. `numbers`: what they are called. `totals`: their tokens. `values`: those of their outputs.
export function drawStack(ctx, { cell, steps, numbers, totals, values, agentIndex, hover, theme }) {
  const { x, y, width, height, stack } = cell
  const waits = stack.kind === "wait"
  const box = stack.kind === "done" ? theme.status.done : null
  const colours = { stroke: box ? box.stroke : theme.line, fill: box ? box.fill : theme.quiet }
  const dashed = waits || stack.kind === "skipped"
  const behind = waits ? [0] : [2 * BEHIND, BEHIND, 0]
  const size = { width: width - behind[0], height: height - behind[0] }
  const [left, top] = [x - width / 2, y - height / 2]
  const look = { ...size, ...colours, theme, lineWidth: 1.2, selected: false, hover, dashed }
  ctx.save()
  for (const by of behind) frame(ctx, { left: left + by, top: top + by, ...look })
  const { numbers: which, state } = stackWords(cell, numbers)
  const count = cell.keys.length
  // Of a long title the numbers stay.
  const titles = [`${which} · ${count} ${waits ? "wait" : "steps"}`, which]
  const line = waits ? "" : `${isolated(stack.agent)} · ${steps[0].instruction}`
  drawCompactText(ctx, { left, top, ...size, titles, line, agentIndex, theme, sign: waits ? 15 : 0 })
  if (waits) drawGlyph(ctx, left + width - 14, y, FACE.wait, theme.muted, 0, theme)
  else {
    const done = `${STEP_STATUS[FACE[stack.kind]].glyph} ${state}`
    const tallies = values.length ? [tally(values), tally(values, 1)] : []
    const words = [
      ...tallies.flatMap((each) => [`${done} · ${each}`, each]),
      ...(totals ? [`${done} · ${tokens(totals)}`] : []),
      done,
    ]
    drawFoot(ctx, { left: left + PADDING, right: left + size.width - PADDING, y: top + 47.5, words, theme })
    drawTicks(ctx, { left: left + PADDING, top: top + 56, width: size.width - 2 * PADDING, steps, theme })
  }
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
