// Shows one pane per step in a row, filled as its answer streams. If not all fit, running ones are brought into view.

import { PACKED } from "./base.js"
import { isOfFile } from "./decisions.js"
import { departureLines } from "./departures.js"
import { copyButton, el, readButton, setClass, setText } from "./dom.js"
import { speed } from "./figures.js"
import { agentColour, count, doing, pathKey, plural, roundLine, roundName, seconds, sized } from "./format.js"
import {
  STEP_STATUS,
  advice,
  calledTools,
  callsNow,
  isReal,
  notWhole,
  openCalls,
  realWords,
  shownStatus,
  toolsOf,
} from "./status.js"
import { withChips } from "./task_words.js"
import { StreamedMarkdown, isolated, personOf, visible } from "./text.js"

const SHOWN_WHILE_RUNNING = 24_000
const SHOWN_WHEN_DONE = 40_000
const NEAR_THE_END_PX = 40
const ROUNDED_PX = 3 // what the widths of panes that fit exactly may add up to
const BY_HAND_MS = 1000 // for how long a gesture may go on scrolling

export class Panes {
  constructor({ onSelect, onRead }) {
    this.onSelect = onSelect
    this.onRead = onRead
    this.panes = new Map()
    this.ghosts = [0, 1, 2].map(() => el("div", { class: "ghost card", "aria-hidden": "true" }))
    this.element = el("div", { class: "panes" }, this.ghosts)
  }

  // Puts panes in the order of the graph's columns, so that steps that run at once are neighbours. It keeps existing panes, so that their scroll position and selection stay.
  arrange(model) {
    const column = new Map(model.layout?.nodes.map(({ path, layer }) => [pathKey(path), layer]))
    const of = (step) => column.get(String(step.path[0])) ?? 0
    const steps = model.ordered().toSorted((one, other) => of(one) - of(other))
    const keys = steps.map((step) => pathKey(step.path))
    for (const [key, pane] of this.panes) {
      if (!keys.includes(key)) {
        pane.element.remove()
        this.panes.delete(key)
        this.brought = null // what comes in its place may have its name
      }
    }
    keys.forEach((key, index) => {
      if (!this.panes.has(key)) this.panes.set(key, new Pane(key, this))
      const { element } = this.panes.get(key)
      if (this.element.children[index] !== element)
        this.element.insertBefore(element, this.element.children[index] ?? null)
    })
    // Once the plan is whole its panes take all the room, so that the end of the run moves nothing.
    const planned = model.run !== null && !model.planning
    this.ghosts.forEach((ghost, index) => (ghost.hidden = index < keys.length || planned))
  }

  show(model, keys, selected) {
    const moved = []
    for (const [key, pane] of this.panes) {
      if (keys === null) pane.element.classList.toggle("selected", key === selected)
      const to = keys === null || keys.has(key) ? pane.show(model, model.step(key)) : null
      if (to !== null) moved.push([pane, to])
    }
    // Panes are scrolled after all text is written, so that the browser lays the page out only once.
    for (const [{ scroller }, to] of moved) scroller.scrollTop = to === "end" ? scroller.scrollHeight : 0
    for (const [pane] of moved) pane.seen()
    if (keys === null) this.bring(selected, model)
  }

  // Whether somebody has scrolled in one of them and is there still.
  isRead() {
    return [...this.panes.values()].some((pane) => pane.isRead())
  }

  // Scrolls the panes, never the page, and only when another step is chosen or begins: people may look elsewhere. Never
  // away from a pane that somebody reads.
  bring(selected, model) {
    const running = [...this.panes.keys()].filter((key) => model.step(key)?.status === "running")
    const wanted = [...running, selected].filter((key) => this.panes.has(key))
    if (this.isRead()) return
    if (!wanted.length || wanted.join() === this.brought) return
    this.brought = wanted.join()
    const { scrollLeft, clientWidth } = this.element
    const span = (keys) => {
      const parts = keys.map((key) => this.panes.get(key).element)
      return [
        Math.min(...parts.map((part) => part.offsetLeft)),
        Math.max(...parts.map((part) => part.offsetLeft + part.offsetWidth)),
      ]
    }
    let [left, right] = span(wanted)
    if (right - left > clientWidth + ROUNDED_PX) [left, right] = span(wanted.slice(-1))
    if (left < scrollLeft) this.element.scrollLeft = left
    else if (right > scrollLeft + clientWidth) this.element.scrollLeft = right - clientWidth
  }

  tick(model) {
    for (const [key, pane] of this.panes) {
      const step = model.step(key)
      if (step?.status === "running") pane.head(model, step)
    }
  }
}

class Pane {
  constructor(key, { onSelect, onRead }) {
    this.key = key
    this.dot = el("span", { class: "dot", "aria-hidden": "true" })
    this.name = el("button", { type: "button", class: "name", onclick: () => onSelect(key) })
    this.chip = el("span", { class: "chip" })
    this.figures = el("span", { class: "number figures" })
    this.real = el("span", { class: "real", hidden: true })
    this.copy = copyButton(`Copy the output of step ${key}`, () => this.text)
    this.read = readButton(`Show all of the output of step ${key}`, () =>
      onRead({ title: this.name.textContent, text: this.text, name: `step-${key}` }),
    )
    this.notice = el("div", { class: "notice", hidden: true })
    this.reasoningText = el("div", { class: "raw", dir: "auto" })
    this.reasoningTitle = el("summary")
    this.reasoning = el("details", { class: "reasoning", hidden: true }, this.reasoningTitle, this.reasoningText)
    this.body = el("div", { class: "prose" })
    this.scroller = el("div", { class: "pane-body", tabindex: "0", "aria-label": `Output of step ${key}` })
    this.scroller.append(this.notice, this.reasoning, this.body)
    this.following = true
    this.running = false
    this.top = 0
    this.touchedMs = -Infinity
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true })
    for (const gesture of ["wheel", "touchmove", "keydown", "focusin"])
      this.scroller.addEventListener(gesture, () => this.touched(), { passive: true })
    this.scroller.addEventListener("pointerdown", () => this.held())
    this.markdown = new StreamedMarkdown(this.body)
    const head = el(
      "header",
      {},
      this.dot,
      this.name,
      this.chip,
      this.figures,
      this.real,
      el("span", { class: "spring" }),
      el("div", { class: "pane-actions" }, this.read, this.copy),
    )
    this.element = el("article", { class: "pane card", "data-step": key }, head, this.scroller)
    head.addEventListener("click", () => onSelect(key))
    this.text = ""
  }

  head(model, step) {
    const status = shownStatus(step)
    const { glyph, word } = STEP_STATUS[status]
    const ms = model.stepMs(step)
    setText(this.name, `${this.key} · ${isolated(step.agent || "…")}`)
    setText(
      this.chip,
      ms === null || status === "reused" || status === "written" ? `${glyph} ${word}` : `${glyph} ${seconds(ms)}`,
    )
    setClass(this.chip, `chip ${status}`)
    this.chip.title = word
    const index = model.agentIndex(step.agent)
    this.dot.style.setProperty("--agent", agentColour(index))
    const rate = status === "running" ? (step.progress?.per_s?.toFixed(1) ?? speed(step, model)) : 0
    this.real.hidden = !isReal(step)
    if (isReal(step)) {
      setText(this.real, step.weights ? `real · ${sized(step.weights.parameters)}` : "real")
      this.real.title = realWords(step)
    }
    setText(this.figures, model.stepTokens(step) ? `${model.stepTokensSaid(step)}${rate ? ` · ${rate}/s` : ""}` : "")
  }

  // Returns where to scroll the pane: to its end while it grows and to its beginning once it is whole, unless somebody
  // reads elsewhere in it.
  show(model, step) {
    if (!step) return null
    this.head(model, step)
    this.element.dataset.status = shownStatus(step)
    this.text = step.output
    this.read.hidden = !step.output
    this.showNotice(model, step)
    this.showReasoning(step)
    const running = step.status === "running"
    if (step.output) {
      this.body.classList.remove("placeholder")
      this.markdown.show(running ? recent(step.output) : beginning(step.output), !running)
    } else {
      this.markdown.reset()
      this.body.classList.add("placeholder")
      this.body.replaceChildren(el("p", { class: "muted", dir: "auto" }, placeholder(step, model.rounds.has(this.key))))
    }
    this.body.classList.toggle("streaming", running && step.output !== "")
    const ended = this.running && !running
    this.running = running
    // A whole text that is shown already is not laid out once more, only to be scrolled to where it is.
    const state = [step.status, step.output.length, step.reasoning.length, this.noticed].join()
    const same = state === this.shownState
    this.shownState = state
    if (same && !running) return null
    return this.following && (running || ended) ? (running ? "end" : "beginning") : null
  }

  // Tells whether a person has scrolled in it and is there still.
  isRead() {
    return !this.following && this.element.matches(":hover, :focus-within")
  }

  touched() {
    this.touchedMs = performance.now()
  }

  // The scrollbar, or a selection, may be held for as long as one likes, and let go of anywhere.
  held() {
    this.touchedMs = Infinity
    const ended = new AbortController()
    const end = () => {
      this.touched()
      ended.abort()
    }
    for (const each of ["pointerup", "pointercancel"]) window.addEventListener(each, end, { signal: ended.signal })
  }

  // The end may move before the browser reports our own scrolling, so only scrolling up counts as reading elsewhere.
  // Where a text or its room changes the browser scrolls by itself, so it counts only by hand then.
  scrolled() {
    const { top, size } = this
    const byHand = performance.now() - this.touchedMs < BY_HAND_MS
    this.seen()
    if (this.atEnd()) this.following = true
    else if (this.top < top && (byHand || this.size === size)) this.following = false
  }

  // Notes where the pane is scrolled to, and how large it is.
  seen() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller
    this.top = scrollTop
    this.size = `${scrollHeight} ${clientHeight}`
  }

  atEnd() {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < NEAR_THE_END_PX
  }

  showNotice(model, step) {
    const turns = step.turns?.length ? [{ kind: "muted", text: turnsLine(step) }] : []
    const lines = [...turns, ...notices(model, step), ...(step.status === "running" ? [] : cutNotice(step.output))]
    const text = lines.map((line) => line.text).join("\n")
    this.notice.hidden = lines.length === 0
    if (this.noticed === text) return
    this.noticed = text
    this.notice.replaceChildren(...lines.map((line) => el("p", { class: line.kind }, line.node ?? line.text)))
  }

  showReasoning(step) {
    this.reasoning.hidden = !step.reasoning
    if (!step.reasoning) return
    setText(this.reasoningTitle, step.output || step.status !== "running" ? "Reasoning" : "Reasoning…")
    if (this.reasoning.open || !this.reasoningText.textContent) setText(this.reasoningText, visible(step.reasoning))
    this.reasoning.ontoggle = () => setText(this.reasoningText, visible(step.reasoning))
  }
}

// While much text streams in, a pane shows only its end, from the beginning of a line.
function recent(text) {
  if (text.length <= SHOWN_WHILE_RUNNING) return text
  const from = Math.floor((text.length - SHOWN_WHILE_RUNNING) / 8_000) * 8_000
  return text.slice(text.indexOf("\n", from) + 1)
}

// Shows the beginning of a very long answer; the reader shows all of it.
export function beginning(text) {
  return text.length <= SHOWN_WHEN_DONE ? text : text.slice(0, SHOWN_WHEN_DONE)
}

export function cutNotice(text) {
  if (text.length <= SHOWN_WHEN_DONE) return []
  return [
    {
      kind: "muted",
      text: `The first ${count(SHOWN_WHEN_DONE)} of ${count(text.length)} characters; “Show all” has the rest.`,
    },
  ]
}

function placeholder(step, inner) {
  switch (step.status) {
    case "running":
      if (step.askedCalls?.length) return `It waits for an approval of ${calledTools(callsNow(step), true)}.`
      if (callsNow(step).length) return `It calls ${calledTools(callsNow(step), true)}.`
      if (openCalls(step).length) return `It called ${calledTools(openCalls(step))}, and waits for what they bring.`
      if (step.reasoning) return "Its answer follows what it thinks."
      if (step.progress) return `${doing(step.progress)}…`
      return inner ? `The steps of ${roundName(step.path)} are shown below.` : "Waiting for the first token…"
    case "skipped":
      return "Not run."
    case "failed":
      return "No text had arrived."
    case "cancelled":
      if (step.turns?.at(-1)?.results === null) {
        const own = step.turns.at(-1).ours.length ? "its" : "its client’s"
        return `Cancelled before ${own} tools had returned.`
      }
      return "Cancelled before any text had arrived."
    case "completed":
      return "The answer is empty."
    case "cut":
      return "It was cut off before any text had arrived."
    case "refused":
    case "filtered":
    case "empty":
      return "There is no text."
    default:
      return withChips(step.instruction, visible)
  }
}

export function notices(model, step) {
  const lines = step.attempts.map((attempt) => ({ kind: "warn", text: attemptLine(step, attempt) }))
  const round = model.rounds.get(pathKey(step.path.slice(0, -1)))
  for (const warning of round?.warnings ?? []) {
    if (warning.step === step.path.at(-1)) lines.push({ kind: "warn", text: `△ ${visible(warning.message)}` })
  }
  if (step.status === "failed") {
    lines.push({ kind: "bad", text: `✕ ${visible(step.error ?? "")}` })
    lines.push({ kind: "muted", text: advice(step.error_code) })
  }
  if (step.status === "skipped" && step.because.length) {
    const why = step.because.map((path) => `step ${pathKey(path)} ${becauseOf(model, path)}`).join(", ")
    lines.push({ kind: "muted", text: `⊘ skipped because ${why}` })
  }
  if (step.status === "unread")
    lines.push({ kind: "warn", text: "⚠ the record ends here; what it holds of the step is kept" })
  if (step.status === "cancelled") lines.push({ kind: "warn", text: "■ cancelled; what had arrived is kept" })
  if (step.status === "completed" && step.incomplete) {
    lines.push({ kind: "warn", text: `◐ cut off by the provider (${step.finish_reason}): the answer is not complete` })
  }
  if (notWhole(step.status)) lines.push(...notWholeLines(model, step))
  lines.push(...departureLines(step, visible))
  if (step.answered_by)
    lines.push({
      kind: "muted",
      text: `⇄ answered by ${isolated(step.answered_by)} in the place of ${isolated(step.agent)}`,
    })
  if (step.given) lines.push(givenLine(step))
  if (step.reused_from) lines.push(reusedLine(step, isOfFile(model.run)))
  const inner = model.rounds.get(pathKey(step.path))
  if (inner) lines.push({ kind: "muted", text: `⤵ ${roundLine(step)}` })
  return lines
}

// Names the tools that a step called before its answer. The panel shows what they were given, and what they brought.
function turnsLine({ turns }) {
  const calls = turns.flatMap((turn) => turn.calls)
  const failed = turns.flatMap((turn) => turn.results ?? turn.partial).filter((result) => result.is_error).length
  const errors = failed ? `, ${failed} failed` : ""
  return `⚒ ${plural(calls.length, "call")} of tools in ${plural(turns.length, "turn")}: ${toolsOf(turns).join(", ")}${errors}`
}

// Describes one call of a step that another call followed: what was wrong, and what was done about it.
function attemptLine(step, attempt) {
  const who = attempt.agent ? `${isolated(attempt.agent)}: ` : ""
  if (attempt.loading)
    return `◷ ${who}the server is loading its model and is asked again until it answers: ${visible(attempt.error)}`
  const asked = attempt.then_agent ? isolated(attempt.then_agent) : isolated(step.agent)
  const then = {
    again: attempt.correction ? "; told so, and asked again" : `; asked again after ${seconds(attempt.wait_ms)}`,
    more_tokens: `; asked again with up to ${count(attempt.then_max_tokens ?? 0)} tokens`,
    fallback: `; ${asked} was asked instead`,
    kept: "; the earlier answer is kept",
  }[attempt.then]
  const said = attempt.refusal ? ` (${visible(attempt.refusal)})` : ""
  return `↻ ${who}attempt ${attempt.attempt}${attempt.error_code.startsWith("Answer") ? "" : " failed"}: ${visible(attempt.error)}${said}${then}`
}

// Describes an incomplete answer: how it ended, who said so, and whether other steps get it.
function notWholeLines(model, step) {
  const { glyph } = STEP_STATUS[step.status]
  const lines = [
    { kind: "warn", text: `${glyph} ${NOT_WHOLE[step.status]}${step.refusal ? `: ${visible(step.refusal)}` : ""}` },
  ]
  for (const { name, arguments: given } of step.tool_calls) {
    lines.push({
      kind: "warn",
      text: `⚒ it called the tool ${visible(name)} with ${visible(given) || "nothing"}, and nothing was called`,
    })
  }
  const readers = [...model.steps.values()].filter(
    (each) => each.path.length === step.path.length && each.reads.includes(step.path.at(-1)),
  )
  if (!step.passed_on && readers.length) lines.push({ kind: "muted", text: "⊘ its output is not passed on" })
  lines.push({ kind: "muted", text: advice(`Answer${step.status[0].toUpperCase()}${step.status.slice(1)}`) })
  return lines
}

function becauseOf(model, path) {
  const status = model.steps.get(pathKey(path))?.status
  if (status === "denied") return "was denied"
  return notWhole(status) ? `was ${STEP_STATUS[status].word}, and that is not passed on` : "failed"
}

export const NOT_WHOLE = {
  refused: "The model refused to answer",
  filtered: "A filter of the provider took the answer away",
  cut: "The answer was cut off before its end",
  empty: "The answer is empty",
}

// Says that a person, and no worker, decided what this output is.
function givenLine({ given, agent }) {
  const who = personOf(given)
  return given.how === "pinned"
    ? { kind: "warn", text: `⚲ pinned by ${who}: this recorded output stands, whatever the step would see` }
    : { kind: "warn", text: `✎ written by ${who}, not by ${isolated(agent)}: no model was asked` }
}

// Which run an imported one names is its file's word: no run of this database, so there is no link.
function reusedLine(step, ofFile) {
  const { run_id: runId, path, imported } = step.reused_from
  const said = ofFile ? ", says the file" : imported ? ", which was imported" : ""
  if (PACKED || ofFile)
    return { kind: "muted", text: `↺ reused: step ${pathKey(path)} of run ${visible(runId)}${said}` }
  const link = el("a", { href: `?${new URLSearchParams({ run: runId })}`, target: "_self" }, "the run where it ran")
  return {
    kind: "muted",
    text: `reused ${runId}`,
    node: el("span", {}, `↺ reused: step ${pathKey(path)} of `, link, said),
  }
}
