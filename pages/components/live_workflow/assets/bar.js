// The bar above the graph: how the run is going, its answer or why there is none, its figures, and what can be done. It
// keeps its height and its place whatever it says. Its lower edge has a segment for each step.

import { PACKED } from "./base.js"
import { el, setAttributes, setClass, setText } from "./dom.js"
import { formulaElement } from "./draw_formulas.js"
import { EditBar } from "./edit_bar.js"
import { basis, count, pathKey, plural, seconds, usdInLine } from "./format.js"
import { askedBy, cameFrom, clientWords, outcomeOf } from "./outcome.js"
import { Share } from "./share.js"
import { RUN_STATUS, STEP_STATUS, isReal, realWords, reallyBy, shownStatus } from "./status.js"
import { StreamedMarkdown, isolated, visible } from "./text.js"

// Largest numbers of characters of a conclusion that stands beside its sentence, and of one in larger letters.
const LARGE = 16
const MEDIUM = 40
// How much of a text is read for one line of it.
const GLIMPSE = 1_500
const FATES = { runs: "running", pinned: "written", fault: "failed" }
const WHY = "Replay the run with one step asked again, or one access changed"

export class Bar {
  constructor({
    replay,
    approval,
    onCancel,
    onChange,
    onEdit,
    onKept,
    onSelect,
    onGoOn,
    onWay,
    onWorkers,
    onWhy,
    onAll,
    onPresent,
  }) {
    Object.assign(this, { replay, approval, onKept })
    const button = (words, onclick, more = {}) => el("button", { type: "button", onclick, ...more }, words)
    this.title = el("span", { class: "title" })
    this.source = button("", () => this.from && onSelect(this.from), { class: "quiet source" })
    this.label = el("div", { class: "label" }, this.title, this.source)
    this.conclusion = el("p", { class: "conclusion", dir: "auto" })
    this.sentence = el("div", { class: "prose sentence", dir: "auto" })
    this.sentenceText = new StreamedMarkdown(this.sentence)
    this.status = el("span", { class: "status" })
    this.time = el("span", { class: "number time", title: "Time since the run began" })
    this.tokens = el("span", { class: "number tokens", title: "Input and output tokens of Conductor and workers" })
    this.cost = el("span", { class: "number cost", title: "What this run itself spent" })
    this.simulated = el(
      "span",
      { class: "pill simulated", title: "No real model answers in this run" },
      "Simulated workers",
    )
    this.came = el("span", { class: "pill replayed" })
    this.asker = el("span", { class: "asker" })
    this.hint = el("span", { class: "hint" })
    this.link = el("span", { class: "link-state" })
    const { status, time, tokens, cost, simulated, came, asker, hint, link } = this
    this.aboutRun = [time, tokens, cost, simulated]
    this.figures = el("div", { class: "figures" }, status, time, tokens, cost, simulated, came, asker, hint, link)
    this.editing = new EditBar({ onChange, onSelect })
    this.lead = el("div", { class: "lead" })
    this.said = el("div", { class: "said" }, this.label, this.conclusion, this.sentence)
    this.lines = el("div", { class: "lines" }, this.said, approval.lines, this.figures, this.editing.lines)
    this.coming = button("", () => this.from && onSelect(this.from), { class: "quiet source" })
    this.comingWords = el("span")
    this.stream = el("div", { class: "prose stream", dir: "auto" })
    this.streamed = new StreamedMarkdown(this.stream)
    this.aside = el("div", { class: "aside" }, el("div", {}, this.comingWords, this.coming), this.stream)
    this.goOn = button("", onGoOn, { class: "go-on primary" })
    this.ways = el("div", { class: "ways", role: "group", "aria-label": "Other ways" })
    this.onWay = onWay
    this.workers = button("Choose real workers", onWorkers, { class: "to-workers primary" })
    this.edit = button("Change a step", onEdit, { class: "change" })
    this.why = button("Why this answer?", onWhy, { class: "why", title: WHY })
    this.cancel = button("Cancel", onCancel)
    this.menu = new Menu("Share", "The address of this run, the run as a file, or the run alone in larger type", [
      ["Link or file…", () => this.sharing.open()],
      ["Present", onPresent, "P"],
    ])
    this.sharing = new Share(undefined, this.menu.opener)
    this.own = [this.goOn, this.workers, this.edit, replay.opener, this.why, this.cancel, this.menu.opener]
    this.actions = el("div", { class: "actions" }, approval.actions, this.own, this.editing.actions)
    // What can be done: the main things are buttons, the other ways out of a failure are below them.
    this.offers = el("div", { class: "offers" }, this.actions, this.ways)
    // What is read aloud. It stays where it is; what is seen is drawn anew where the bar says something of another kind.
    this.aloud = el("p", { class: "aloud", role: "status", "aria-live": "polite" })
    this.segments = el("div", { class: "segments", "aria-hidden": "true" })
    this.element = el(
      "section",
      { class: "card bar", "aria-label": "The run" },
      this.lead,
      this.lines,
      this.aside,
      replay.element,
      this.offers,
      this.segments,
      this.aloud,
      this.sharing.element,
      this.menu.element,
    )
    // The words can be chosen and copied; a press on them leads to all of the answer.
    this.said.addEventListener("click", ({ target }) => target.closest("button, a") === null && onAll())
  }

  // Returns where the focus can stay after something on the page has closed: on no button that a hasty Enter could press
  // by mistake.
  stop() {
    const { edit, element } = this
    if (edit.checkVisibility() && !edit.disabled) return edit
    element.tabIndex = -1
    return element
  }

  // Returns what it says about the answer, as `outcomeOf` does.
  show(model, view) {
    const { run } = model
    const last = run && model.lastStep()
    const outcome = whatIsSaid(model, view, last)
    if (this.showEdit(model, view)) return outcome
    const waits = this.approval.show(model, view.selected)
    this.from = last ? pathKey(last.path) : null
    this.showStatus(model, view, outcome)
    this.showFigures(model)
    this.showSaid(outcome, last, waits)
    this.showComing(model, last, outcome.kind === "quiet" && !waits && run !== null)
    this.showActions(model, view, outcome, waits)
    this.showSegments(model)
    const words = waits ? this.approval.lines.textContent : saidOf(outcome)
    setText(this.aloud, `${this.status.textContent}. ${visible(words)}`)
    this.showKind(waits ? "waits" : outcome.kind, waits)
    return outcome
  }

  // While a plan is edited, the bar says what that would run. Returns whether it does.
  showEdit(model, { editor }) {
    const previews = this.editing.show(model.replayed ? null : editor)
    const { approval, said, lead, figures, aside, own, ways, editing } = this
    if (!previews) {
      figures.hidden = false
      return false
    }
    for (const part of [approval.lines, approval.actions, said, lead, figures, aside, ...own, ways]) part.hidden = true
    this.offers.hidden = false
    this.showSegments(model)
    setText(this.aloud, editing.words)
    this.kind = "edited"
    setAttributes(this.element, { "aria-label": "The edited plan" })
    editing.showKind(this.element)
    return true
  }

  // Another kind has other places. Parts that are put in anew appear there, and no one's eye follows them.
  showKind(kind, waits) {
    if (kind === this.kind) return
    this.kind = kind
    setAttributes(this.element, { "aria-label": waits && !this.approval.actions.hidden ? "Approval" : "The run" })
    setClass(this.element, `card bar ${kind}`)
    this.element.prepend(this.lead, this.lines, this.aside)
  }

  showStatus(model, { connection, cancelling, opening }, { workers }) {
    const { run } = model
    for (const part of this.aboutRun) part.hidden = run === null
    setText(this.link, { connecting: "connecting…", reconnecting: "connection lost, reconnecting…" }[connection] ?? "")
    const [came, title] = cameFrom(model)
    this.came.hidden = !came
    setText(this.came, came)
    this.came.title = title
    const asker = run?.client ? askedBy(run) : ""
    setText(this.asker, asker)
    this.asker.title = asker && `Asked through the endpoint: ${clientWords(run)}`
    if (run === null) {
      setText(this.status, opening ? "Opening the run" : "No run is open")
      return setClass(this.status, "status idle")
    }
    const stops = cancelling && !model.ended
    const unanswered = workers && run.status === "completed" ? { glyph: "◌", word: "Not answered" } : null
    const { glyph, word } = stops ? { glyph: "■", word: "Cancelling" } : (unanswered ?? RUN_STATUS[run.status])
    setText(this.status, `${glyph} ${word}${progress(model)}`)
    setClass(this.status, `status ${stops ? "cancelled" : unanswered ? "declined" : run.status}`)
    this.status.title = model.shape
  }

  showFigures(model) {
    const { run } = model
    if (run === null) return
    this.simulated.hidden = !run.simulated
    setText(this.time, seconds(model.elapsedMs()))
    setText(this.tokens, `${count(model.totalTokens())} tokens`)
    const { total, known } = model.cost()
    const most = run.cost_at_most && total > 0 ? "at most " : ""
    setText(this.cost, `${most}${usdInLine(total, known)}`)
    const how = basis(run)
    this.cost.title = `What this run itself spent, Conductor and workers${how ? `, ${how}` : ""}${total === null ? ": the price of a part is unknown" : ""}`
  }

  showSaid({ title, sourced, conclusion, sentence, formula, code, hint }, last, waits) {
    const said = visible(conclusion ?? "")
    const size = said.length <= LARGE ? "large" : said.length <= MEDIUM ? "medium" : "long"
    const large = size === "large" && said !== "" && sentence !== undefined
    const to = large ? this.lead : this.said
    if (this.conclusion.parentElement !== to) to.prepend(this.label, this.conclusion)
    this.lead.hidden = !large || waits
    this.said.hidden = waits
    setText(this.title, title ?? "")
    this.title.hidden = !title
    this.source.hidden = !last || !sourced
    setText(this.source, last ? `${title ? "" : "step "}${this.from} · ${isolated(last.agent)}${reallyBy(last)}` : "")
    this.source.title = last && isReal(last) ? realWords(last) : ""
    this.label.hidden = this.title.hidden && this.source.hidden
    this.conclusion.hidden = !said
    this.showConclusion(said, formula)
    setClass(this.conclusion, `conclusion ${large || size !== "large" ? size : "medium"}${code ? " code" : ""}`)
    this.sentence.hidden = !sentence || (said !== "" && !large)
    if (!this.sentence.hidden) this.sentenceText.show(sentence.slice(0, GLIMPSE), true)
    setText(this.hint, waits ? "" : (hint ?? ""))
    this.hint.title = hint ?? ""
  }

  // A conclusion that one line cannot show as written is rendered.
  showConclusion(text, tex) {
    if (!tex) return setText(this.conclusion, text)
    if (this.conclusion.firstChild?.dataset?.source === tex) return
    this.conclusion.replaceChildren(formulaElement({ source: tex, tex, instead: text, display: false, drawn: true }))
  }

  // Says where the answer will come from; below it, the line of it that is being written, or what the Conductor does.
  showComing(model, last, coming) {
    this.aside.hidden = !coming
    if (!coming) return
    const writes = last?.status === "running" && last.output
    setText(this.comingWords, writes ? "The answer is being written by " : "The answer will come from ")
    setText(this.coming, last ? `${this.from} · ${isolated(last.agent)}` : "the plan’s last step")
    const { glyph, word } = STEP_STATUS[last ? shownStatus(last) : "waiting"]
    const now = model.planning ? planningNow(model) : `${glyph} ${word}`
    if (writes) this.streamed.show(last.output.slice(-GLIMPSE).trimEnd().split("\n").at(-1), false)
    else {
      this.streamed.reset()
      setText(this.streamed.tail, now)
    }
  }

  showActions(model, { editable, cancelling, goOn, ways, kept, editor }, { kind, workers }, waits) {
    const { run } = model
    const elsewhere = model.replayed
    this.offers.hidden = elsewhere || run === null
    if (run === null) return
    this.sharing.show(run, model.ended && !model.stopped)
    this.menu.opener.hidden = PACKED !== null
    this.goOn.hidden = !goOn || !model.editable
    setText(this.goOn, `▶ ${goOn}`)
    this.showWays((model.editable && ways) || [], (editor === null && model.changeable && kept) || [])
    this.workers.hidden = !workers || PACKED !== null
    this.cancel.disabled = model.ended || cancelling
    this.cancel.hidden = model.ended
    this.why.hidden = kind !== "answered" || run.status !== "completed" || PACKED !== null
    this.edit.hidden = PACKED !== null || (!model.ended && !(waits && model.changeable)) || editor !== null
    this.edit.disabled = !editable || !model.changeable || model.steps.size === 0
    this.edit.title = model.ended ? "Change the plan and run what changed" : "Change the steps that have not run"
  }

  // What else a failed run offers, and edits of it that were not run, each by one press.
  showWays(ways, kept) {
    this.ways.hidden = ways.length + kept.length === 0
    const offered = JSON.stringify([ways, kept])
    if (offered === this.offered) return
    this.offered = offered
    const way = ([name, words]) => el("button", { type: "button", onclick: () => this.onWay(name) }, words)
    this.ways.replaceChildren(...ways.map(way), ...kept.flatMap((edit) => this.keptEdit(edit)))
  }

  keptEdit({ id, words, title }) {
    const go = el("button", { type: "button", class: "kept-edit", onclick: () => this.onKept("kept-edit", id) })
    go.append(`✎ Go on with your edit: ${visible(words)}`)
    go.title = visible(title)
    const away = el("button", { type: "button", onclick: () => this.onKept("throw-edit", id) }, "Throw away")
    return [go, away]
  }

  showSegments(model) {
    const planned = model.edited?.steps.filter(({ number }) => number !== null).map(({ fate }) => FATES[fate] ?? fate)
    const steps = model.ordered().filter((step) => step.path.length === 1)
    const classes = planned ?? (steps.length ? steps.map(shownStatus) : ["waiting"])
    while (this.segments.children.length > classes.length) this.segments.lastChild.remove()
    while (this.segments.children.length < classes.length) this.segments.append(el("i"))
    classes.forEach((name, index) => setClass(this.segments.children[index], name))
  }
}

const saidOf = ({ title, conclusion }) => [title, conclusion].filter(Boolean).join(": ")

function whatIsSaid(model, view, last) {
  if (model.run === null) return { kind: "quiet", hint: beforeRuns(view) }
  return outcomeOf(model, model.run, last)
}

function beforeRuns({ opening }) {
  return opening ? "" : "Type a task or take an example, then press Run."
}

function progress(model) {
  const steps = [...model.steps.values()].filter((step) => step.path.length === 1)
  const { status } = model.run
  if (status === "running" && !steps.length) return " · planning"
  if (!steps.length) return ""
  if (status === "planned") return ` · ${plural(steps.length, "step")}`
  const done = steps.filter((step) => ["completed", "reused", "written"].includes(step.status)).length
  // A count of one step is left out if the run has the same status.
  const others = ["refused", "filtered", "cut", "empty", "failed"].map((name) => {
    const number = steps.filter((step) => step.status === name).length
    return number > (name === status && name !== "failed" ? 1 : 0) ? ` · ${number} ${STEP_STATUS[name].word}` : ""
  })
  return ` ${done} of ${steps.length}${others.join("")}`
}

function planningNow(model) {
  const round = model.rounds.get("")
  const failed = round?.raw ? undefined : round?.retries?.at(-1)
  if (failed?.loading) return "the Conductor’s server is loading its model, and is asked again until it answers"
  if (failed) return `the Conductor’s server failed and is asked again after ${seconds(failed.wait_ms)}`
  return PLANNING[round?.progress?.phase] ?? "the Conductor is writing the plan"
}

const PLANNING = {
  loading: "the Conductor’s model is being loaded",
  converting: "the Conductor’s model is being converted",
  reading: "the Conductor is reading its prompt",
  thinking: "the Conductor is thinking about the plan",
}

// A button that opens a menu below it.

class Menu {
  // `items`: [words, what it does, its key if it has one].
  constructor(words, title, items) {
    const arrow = el("span", { "aria-hidden": "true" }, " ▾")
    const opens = {
      type: "button",
      class: `${words.toLowerCase()}-menu`,
      title,
      "aria-haspopup": "true",
      onclick: () => this.open(),
    }
    this.opener = el("button", opens, words, arrow)
    const item = ([name, does, key]) => {
      const onclick = () => {
        this.element.hidePopover()
        does()
      }
      return el("button", { type: "button", onclick }, name, key && el("kbd", { "aria-hidden": "true" }, key))
    }
    this.element = el("div", { class: "drop", popover: "auto" }, items.map(item))
  }

  open() {
    this.element.showPopover()
    const { right, bottom } = this.opener.getBoundingClientRect()
    const left = Math.max(8, right - this.element.offsetWidth)
    Object.assign(this.element.style, { left: `${left}px`, top: `${bottom + 4}px` })
    this.element.querySelector("button").focus()
  }
}
