// Paints a plan that is being edited: what is new, changed, moved or removed, and what a re-run would do with it; and
// two compared plans: also whose output is another one though its step is the same. Every mark has a sign and a word or a line style of its own; none depends on colour alone.

import { agentDot, drawCompactText, drawFoot, fit, frame, nameHeight } from "./card_parts.js"
import { BOXED, COMPACT_BELOW, drawInstruction } from "./draw.js"
import { isolated, visible } from "./text.js"

const PADDING = 13
const TAG_HEIGHT = 17

export const CHANGE = {
  new: { glyph: "+", word: "new" },
  changed: { glyph: "~", word: "changed" },
  moved: { glyph: "⇅", word: "moved" },
  removed: { glyph: "−", word: "removed" },
  inputs: { glyph: "↳", word: "only inputs" },
  chance: { glyph: "≠", word: "by chance" },
  same: { glyph: "=", word: "same" },
}
export const FATE = {
  runs: { glyph: "▶", word: "runs" },
  reused: { glyph: "↺", word: "reused" },
  written: { glyph: "✎", word: "by a person" },
  pinned: { glyph: "⚲", word: "pinned" },
  fault: { glyph: "✕", word: "fault" },
}
const OF_FATE = { reused: "reused", written: "warn", pinned: "warn", fault: "failed" }
// Changes that are not the step's own are drawn lightly.
const LIGHT = new Set(["removed", "inputs", "chance"])

export function drawEditedCard(ctx, { x, y, width, height, step, agentIndex, selected, hover, theme, model }) {
  const left = x - width / 2
  const top = y - height / 2
  const gone = step.change === "removed"
  const box = gone ? undefined : theme.status[OF_FATE[step.fate] ?? BOXED[step.status]]
  const stroke = box ? box.stroke : step.change && !gone ? theme.text : theme.line
  const lineWidth = step.change === "new" ? 2.4 : 1.4
  ctx.save()
  frame(ctx, {
    left,
    top,
    width,
    height,
    selected,
    hover,
    theme,
    lineWidth,
    stroke,
    fill: box ? box.fill : theme.surface,
    dashed: gone,
  })
  const title = `${step.number ?? step.was} · ${isolated(step.agent)}`
  if (height < COMPACT_BELOW) {
    // A tag on the border of so low a card would cover its name.
    const line = step.change
      ? `${CHANGE[step.change].glyph} ${CHANGE[step.change].word} · ${step.instruction}`
      : step.instruction
    drawCompactText(ctx, { left, top, width, height, titles: [title], line, agentIndex, theme, struck: gone })
    drawFate(ctx, {
      x: left + width - 14,
      y: top + nameHeight(height, true) + 1,
      step,
      colour: box ? box.stroke : theme.muted,
      theme,
    })
    ctx.restore()
    return
  }
  agentDot(ctx, left + PADDING + 4.5, top + 18, theme.agent(agentIndex))
  ctx.textBaseline = "middle"
  ctx.textAlign = "left"
  ctx.fillStyle = gone ? theme.muted : theme.text
  ctx.font = `600 14px ${theme.font}`
  ctx.fillText(fit(ctx, title, width - 2 * PADDING - 16), left + PADDING + 16, top + 18.5)
  ctx.font = `400 13px ${theme.font}`
  drawInstruction(ctx, { left, top, width, instruction: step.instruction, struck: gone })
  const value = valueSaid(step, model.values?.get(step.key))
  const place = { left: left + PADDING, right: left + width - PADDING, y: top + height - 12 }
  const colour = box && step.fate === "fault" ? box.stroke : theme.muted
  drawFoot(ctx, { ...place, words: footer(step), value, theme, colour })
  if (step.change) drawTag(ctx, { right: left + width - PADDING, y: top, change: step.change, theme })
  ctx.restore()
}

// Paints what a re-run does with the step as a sign alone, where there is no room for words.
function drawFate(ctx, { x, y, step, colour, theme }) {
  if (!FATE[step.fate]) return
  ctx.font = `600 13px ${theme.font}`
  ctx.fillStyle = colour
  ctx.textAlign = "center"
  ctx.fillText(FATE[step.fate].glyph, x, y)
  ctx.textAlign = "left"
}

// Paints the step's change on the upper border, so that the title keeps its room.
function drawTag(ctx, { right, y, change, theme }) {
  const said = `${CHANGE[change].glyph} ${CHANGE[change].word}`
  const light = LIGHT.has(change)
  ctx.font = `600 12px ${theme.font}`
  const width = ctx.measureText(said).width + 14
  ctx.beginPath()
  ctx.roundRect(right - width, y - TAG_HEIGHT / 2, width, TAG_HEIGHT, TAG_HEIGHT / 2)
  ctx.fillStyle = light ? theme.surface : theme.text
  ctx.fill()
  ctx.strokeStyle = light ? theme.muted : theme.text
  ctx.lineWidth = 1
  ctx.stroke()
  ctx.fillStyle = light ? theme.muted : theme.surface
  ctx.fillText(said, right - width + 7, y + 0.5)
}

// Returns the value of the run's output beside what becomes of it: it stays, or is the one from before.
function valueSaid({ fate }, value) {
  if (!value || fate === "fault" || fate === "written") return ""
  return fate === "runs" ? `was ${value}` : value
}

// Returns what the last line says, the longest form first. Why a step runs or is reused is in the list of the plan.
function footer(step) {
  const fate = FATE[step.fate]
  if (!fate) return [visible(step.words)]
  if (step.fate === "fault") return [`${fate.glyph} ${visible(step.words)}`]
  const short = `${fate.glyph} ${fate.word}`
  return step.words ? [`${short} · ${visible(step.words)}`, short] : [short]
}
