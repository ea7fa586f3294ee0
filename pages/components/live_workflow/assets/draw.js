// Paints the graph: cards for steps, curves for access lists, bands for inner rounds. All coordinates are vis's own.

import { agentDot, drawCompactText, drawFoot, drawGlyph, fit, frame, nameHeight } from "./card_parts.js"
import { ARROW, onCurve, pullOf } from "./edge_path.js"
import { speed } from "./figures.js"
import { pathKey, seconds, tokens } from "./format.js"
import { STEP_STATUS, calledTools, callsNow, ended, notWhole, openCalls, shownStatus } from "./status.js"
import { withoutTask } from "./task_words.js"
import { isolated, personOf, rightToLeft, visible } from "./text.js"

// A card that is lower than this has one line of its instruction.
export const COMPACT_BELOW = 80
const PADDING = 11
const TURN = 8

export const BOXED = {
  completed: "done",
  incomplete: "warn",
  declined: "warn",
  refused: "warn",
  filtered: "warn",
  cut: "warn",
  empty: "warn",
  running: "running",
  retrying: "warn",
  loading: "warn",
  reused: "reused",
  written: "warn",
  failed: "failed",
  denied: "failed",
  cancelled: "warn",
  asked: "warn",
  tool_results: "warn",
  calls_tools: "running",
  unread: "warn",
}

// Returns the current colours and fonts, from the same CSS variables as the rest of the page.
export function readTheme(root) {
  const style = getComputedStyle(root)
  const colour = (name) => style.getPropertyValue(`--${name}`).trim()
  const status = {}
  for (const name of ["done", "running", "reused", "failed", "warn"]) {
    status[name] = { stroke: colour(name), fill: colour(`${name}-fill`) }
  }
  return {
    font: style.fontFamily,
    text: colour("text"),
    muted: colour("muted"),
    line: colour("line-strong"),
    edge: colour("edge"),
    surface: colour("surface"),
    quiet: colour("quiet"),
    accent: colour("accent"),
    status,
    agent: (index) => colour(index === null ? "agent-none" : `agent-${index % 8}`),
  }
}

export function drawCard(ctx, { x, y, width, height, step, agentIndex, selected, hover, theme, model, phase }) {
  const status = shownStatus(step)
  const box = theme.status[BOXED[status]]
  const left = x - width / 2
  const top = y - height / 2
  const colours = { stroke: box ? box.stroke : theme.line, fill: box ? box.fill : theme.quiet }
  ctx.save()
  frame(ctx, { left, top, width, height, selected, hover, theme, lineWidth: 1.4, dashed: !box, ...colours })
  if (height < COMPACT_BELOW) {
    const title = `${pathKey(step.path)} · ${isolated(step.agent)}`
    drawCompactText(ctx, { left, top, width, height, titles: [title], line: step.instruction, agentIndex, theme })
    drawGlyph(
      ctx,
      left + width - 14,
      top + nameHeight(height, true),
      status,
      box ? box.stroke : theme.muted,
      phase,
      theme,
    )
    ctx.restore()
    return
  }
  drawTitle(ctx, { left, top, width, step, agentIndex, theme })
  drawGlyph(ctx, left + width - PADDING - 6, top + 18, status, box ? box.stroke : theme.muted, phase, theme)
  ctx.font = `400 13px ${theme.font}`
  ctx.fillStyle = theme.text
  drawInstruction(ctx, { left, top, width, instruction: step.instruction })
  const words = footer(step, status, model)
  const value = model.values.get(pathKey(step.path))
  drawFoot(ctx, { left: left + PADDING, right: left + width - PADDING, y: top + height - 12, words, value, theme })
  ctx.restore()
}

// Paints the first words of `instruction` in two lines, in their reading direction; `struck` strikes them out.
export function drawInstruction(ctx, { left, top, width, instruction, struck = false }) {
  const text = visible(withoutTask(instruction)).replace(/\s+/g, " ")
  ctx.save()
  const fromRight = rightToLeft(text)
  ctx.direction = fromRight ? "rtl" : "ltr"
  ctx.textAlign = "start"
  const x = fromRight ? left + width - PADDING : left + PADDING
  wrap(ctx, text, width - 2 * PADDING, 2).forEach((line, index) => {
    const y = top + 38 + index * 16.5
    const length = ctx.measureText(line).width
    ctx.fillText(line, x, y)
    if (struck) ctx.fillRect(fromRight ? x - length : x, y - 0.5, length, 1)
  })
  ctx.restore()
}

function drawTitle(ctx, { left, top, width, step, agentIndex, theme }) {
  agentDot(ctx, left + PADDING + 4.5, top + 18, theme.agent(agentIndex))
  ctx.textAlign = "left"
  ctx.textBaseline = "middle"
  ctx.font = `600 14px ${theme.font}`
  ctx.fillStyle = theme.text
  const title = `${pathKey(step.path)} · ${isolated(step.agent)}`
  ctx.fillText(fit(ctx, title, width - 2 * PADDING - 32), left + PADDING + 16, top + 18.5)
}

// Returns what the last line says, the longest form first.
export function footer(step, status, model) {
  const said = footerSaid(step, status, model)
  return Array.isArray(said) ? said : [said]
}

function footerSaid(step, status, model) {
  const ms = model.stepMs(step)
  switch (status) {
    case "draft":
      return "being written"
    case "tool_results":
      return [`waits for ${calledTools(openCalls(step))}`, STEP_STATUS[status].word]
    case "calls_tools":
      return [`calls ${calledTools(callsNow(step), true)}`, STEP_STATUS[status].word]
    case "asked":
      return step.askedCalls?.length
        ? [`waits for approval: ${calledTools(callsNow(step), true)}`, STEP_STATUS[status].word]
        : STEP_STATUS[status].word
    case "unfinished":
    case "denied":
      return STEP_STATUS[status].word
    case "slot": {
      const most = model.worker(step.agent).max_concurrency
      return `waits for a slot: ${isolated(step.agent)} answers ${most} at once`
    }
    case "waiting":
      return step.reads.length ? `waits for ${unfinished(step, model).join(", ") || "its turn"}` : "ready to start"
    case "running": {
      const rate = speed(step, model)
      const count = model.stepTokens(step)
      return `${seconds(ms)}${count ? ` · ${tokens(count)}` : ""}${rate ? ` · ${rate} tok/s` : ""}`
    }
    case "loading":
      return `its server loads the model · ${seconds(ms)}`
    case "retrying":
      return `attempt ${step.attempts.length + 1} · ${seconds(ms)}`
    case "skipped":
      return step.because.length
        ? `skipped: ${step.because.map((path) => `${pathKey(path)} ${whyBelow(model, path)}`).join(", ")}`
        : (model.run?.last_step ?? null) !== null && model.run.status === "completed"
          ? `not needed: ends with step ${model.run.last_step}`
          : "skipped: the run stopped"
    case "reused":
      return step.given ? [`pinned by ${personOf(step.given)}`, "pinned"] : "reused"
    case "written":
      return [`written by ${personOf(step.given)}`, "written"]
    default: {
      const short = status === "completed" ? seconds(ms) : `${seconds(ms)} · ${STEP_STATUS[status].word}`
      return step.answered_by ? [`${short} · by ${isolated(step.answered_by)}`, `${short} · by another`, short] : short
    }
  }
}

// Says what happened to the step at `path`, for the steps that did not run because of it.
function whyBelow(model, path) {
  const status = model.steps.get(pathKey(path))?.status
  return notWhole(status) || status === "denied" ? STEP_STATUS[status].word : "failed"
}

function unfinished(step, model) {
  const prefix = step.path.slice(0, -1)
  return step.reads.filter((index) => {
    return !ended(model.steps.get(pathKey([...prefix, index]))?.status)
  })
}

// `granted`: whether this edge is one of the selected step's inputs; `near`: whether it is one of the card's under the
// pointer.
export function drawEdge(ctx, { edge, granted, near = false, theme }) {
  const { start, enter, bend, tip, end, course } = edge.path
  ctx.save()
  const style = edge.change ? edgeStyle(edge.change, theme) : { colour: theme.edge, width: 1.3, dash: [] }
  ctx.strokeStyle = ctx.fillStyle = granted ? theme.accent : near ? theme.text : style.colour
  ctx.lineWidth = Math.max(style.width, granted ? 2.2 : near ? 1.8 : 0)
  ctx.setLineDash(style.dash)
  ctx.beginPath()
  ctx.moveTo(start.x, start.y)
  if (course) {
    course.slice(1).forEach((corner, at) => {
      const next = course[at + 2] ?? tip
      ctx.arcTo(corner.x, corner.y, next.x, next.y, turnAt(course[at], corner, next))
    })
    ctx.lineTo(tip.x, tip.y)
  } else {
    if (enter) {
      curve(ctx, start, enter)
      ctx.lineTo(bend.x, bend.y)
    }
    curve(ctx, bend, tip)
  }
  ctx.stroke()
  ctx.setLineDash([])
  ctx.beginPath()
  ctx.moveTo(end.x, end.y)
  ctx.lineTo(end.x - ARROW, end.y - ARROW * 0.5)
  ctx.lineTo(end.x - ARROW, end.y + ARROW * 0.5)
  ctx.closePath()
  ctx.fill()
  if (edge.change) drawEdgeMark(ctx, onCurve(bend, tip, 0.64), edge.change, theme)
  ctx.restore()
}

// Returns the radius of a corner: never more than half of the shorter line there.
function turnAt(before, corner, after) {
  const length = (a, b) => Math.hypot(a.x - b.x, a.y - b.y)
  return Math.min(TURN, length(before, corner) / 2, length(corner, after) / 2)
}

export function curve(ctx, from, to) {
  const pull = pullOf(from, to)
  ctx.bezierCurveTo(from.x + pull, from.y, to.x - pull, to.y, to.x, to.y)
}

export function drawBand(ctx, { band, label, opener, theme }) {
  const { left, right } = band
  ctx.save()
  if (opener) {
    ctx.strokeStyle = theme.line
    ctx.setLineDash([3, 4])
    ctx.beginPath()
    ctx.moveTo(opener.x, opener.y + opener.height / 2)
    ctx.lineTo(opener.x, band.top)
    ctx.stroke()
  }
  ctx.beginPath()
  ctx.roundRect(left, band.top, right - left, band.bottom - band.top + 6, 12)
  ctx.setLineDash([])
  ctx.strokeStyle = theme.line
  ctx.globalAlpha = 0.55
  ctx.stroke()
  ctx.globalAlpha = 1
  ctx.font = `600 12px ${theme.font}`
  ctx.fillStyle = theme.muted
  ctx.textBaseline = "middle"
  ctx.fillText(fit(ctx, label, right - left - 24), left + 14, band.top + 15)
  ctx.restore()
}

const wrapped = new Map()

function wrap(ctx, text, width, most) {
  const key = `${ctx.font}|${Math.round(width)}|${text}`
  if (!wrapped.has(key)) {
    if (wrapped.size > 500) wrapped.clear()
    wrapped.set(key, wrapNow(ctx, text, width, most))
  }
  return wrapped.get(key)
}

function wrapNow(ctx, text, width, most) {
  const words = text.slice(0, 400).split(" ")
  const lines = []
  let line = ""
  for (let index = 0; index < words.length; index += 1) {
    const longer = line ? `${line} ${words[index]}` : words[index]
    if (!line || ctx.measureText(longer).width <= width) {
      line = longer
    } else if (lines.length === most - 1) {
      return [...lines, fit(ctx, `${line} ${words.slice(index).join(" ")}`, width)]
    } else {
      lines.push(fit(ctx, line, width))
      line = words[index]
    }
  }
  return [...lines, fit(ctx, line, width)]
}

// Paints the edges that an edit of the plan gains or loses.

const MARK_RADIUS = 6.5

// Returns the line style of a gained or lost edge.
function edgeStyle(change, theme) {
  if (change === "gained") return { colour: theme.text, width: 2.4, dash: [] }
  return { colour: theme.muted, width: 1.5, dash: [6, 5] }
}

// Paints the sign on a gained or lost edge, near the step that reads.
function drawEdgeMark(ctx, { x, y }, change, theme) {
  const { colour } = edgeStyle(change, theme)
  ctx.setLineDash([])
  ctx.beginPath()
  ctx.arc(x, y, MARK_RADIUS, 0, 2 * Math.PI)
  ctx.fillStyle = theme.surface
  ctx.fill()
  ctx.strokeStyle = colour
  ctx.lineWidth = 1.4
  ctx.stroke()
  ctx.beginPath()
  ctx.moveTo(x - 3, y)
  ctx.lineTo(x + 3, y)
  if (change === "gained") {
    ctx.moveTo(x, y - 3)
    ctx.lineTo(x, y + 3)
  }
  ctx.stroke()
}
