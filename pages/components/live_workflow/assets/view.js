// The component as a whole: one model fed by one socket, shown by the parts.

import { Approval } from "./approval.js"
import { backFromDialog, isNewest } from "./back_from_dialog.js"
import { Bar } from "./bar.js"
import { PACKED } from "./base.js"
import { Conversation } from "./conversation.js"
import { el, pageLink, setText } from "./dom.js"
import { EDITING, EditorKeys } from "./editor_keys.js"
import { pathKey } from "./format.js"
import { Graph } from "./graph.js"
import { Inspector } from "./inspector.js"
import { Judging } from "./judging.js"
import { DRAWN_MS, byKeyboard, returnAfter } from "./keep_focus.js"
import { Kin } from "./kin.js"
import { Lower } from "./lower.js"
import { RunModel } from "./model.js"
import { restyled, takePlace } from "./mounting.js"
import { cancelledHere } from "./outcome.js"
import { Panes } from "./panes.js"
import { PlanEditing } from "./plan_editing.js"
import { PlanList } from "./plan_list.js"
import { Presenting } from "./presenting.js"
import { Reader } from "./reader.js"
import { Replay } from "./replay.js"
import { RunSocket, runUrl } from "./socket.js"
import { visible } from "./text.js"
import { Timeline } from "./timeline.js"
import { Twin } from "./twin.js"
import { conductorDoing, editedLegend, howItWorks, legendText, planText, showShare, whatMatters } from "./view_words.js"

// The step of ?run=ID&step=2.0, to which a list of failures leads; null: the address names none of this run.
function stepInAddress(runId, model) {
  const named = new URLSearchParams(location.search)
  const key = named.get("step")
  return named.get("run") === runId && model.steps.has(key) ? key : null
}

const TICK_MS = 125
const TELL_AGAIN_MS = 3000
const MOST_TELLS = 2
const TASK_FIELD = ".st-key-task-box textarea"
// With much above it the rest scrolls away instead of being squeezed.
const MOST_ABOVE_PX = 170

export class LiveWorkflow {
  // A shared file brings `connect`, `record` and `place` of its own: see shared.js.
  constructor(parent, { connect = fromServer, record, place } = {}) {
    isNewest(this)
    this.connect = connect
    this.replay = new Replay(this, { record, place })
    this.reader = new Reader()
    const onRead = (what) => this.reader.open(what)
    this.approval = new Approval({
      onSelect: (key) => this.select(key),
      onFault: (fault) => {
        this.unknown = fault || null
        this.queue()
      },
    })
    this.bar = new Bar({
      replay: this.replay,
      approval: this.approval,
      onCancel: () => this.cancel(),
      onChange: (change) => this.change(change),
      onKept: (kind, name) => this.intend(kind, null, this.runId, name),
      onEdit: () => this.edit(this.selectedPath()),
      onSelect: (key) => this.select(key),
      onGoOn: () => this.intend("go-on"),
      onWay: (name) => this.intend(name),
      onWorkers: () => this.ask("workers"),
      onWhy: () => this.intend("blame"),
      onAll: () => {
        if (this.graph.wanted === "list") this.graph.choose(null) // it has the room of the answer
        this.lower.choose("Answer")
      },
      onPresent: () => this.presenting.set(true),
    })
    this.graph = new Graph({
      onSelect: (key) => this.select(key),
      onOpen: (key) => this.open(key),
      onView: () => this.queue(),
    })
    this.twin = new Twin({
      onSelect: (key) => this.select(key),
      onOpen: (key) => this.open(key),
      onUnfold: (stack) => this.unfold(stack),
      onFold: (key) => this.fold(key),
    })
    this.panes = new Panes({ onSelect: (key) => this.select(key), onRead })
    this.timeline = new Timeline({ onSelect: (key) => this.select(key) })
    this.inspector = new Inspector({
      onRead,
      onChange: (change) => this.change(change),
      onType: (change) => this.planEditing.type(change),
      onEdit: (path, leads) => this.edit(path, leads),
      onAsk: (kind, path) => this.ask(kind, path),
      onSelect: (key) => this.select(key),
      onFollow: () => this.followRun(),
    })
    this.planEditing = new PlanEditing({
      graph: this.graph,
      twin: this.twin,
      fields: this.inspector.body,
      send: (changes) => this.setStateValue("changes", changes),
      onChange: () => this.queue(),
    })
    this.planButton = el("button", { type: "button", class: "quiet plan-button", onclick: () => this.select(null) })
    this.notice = el("div", { class: "notice-line", role: "alert", hidden: true })
    this.empty = el("div", { class: "graph-empty" })
    this.how = el("section", { class: "how", "aria-label": "How it works", hidden: true }, howItWorks())
    this.statuses = el("span", { class: "statuses" })
    this.granted = el("span", { class: "granted-key" }, "━ what the selected step may read")
    this.legend = el("div", { class: "legend", "aria-hidden": "true" }, this.statuses, this.granted)
    this.keys = el("span", { class: "keys", "aria-hidden": "true" }, "←/→ select · Enter open")
    const footer = el(
      "div",
      { class: "graph-footer" },
      this.planButton,
      this.legend,
      this.planEditing.words,
      el("span", { class: "spring" }),
      this.twin.element,
      this.keys,
      this.planEditing.hint,
      this.graph.controls,
    )
    const map = el(
      "section",
      { class: "card map", "aria-label": "Workflow graph" },
      this.graph.element,
      this.empty,
      footer,
      this.planEditing.menu.element,
    )
    this.links = LINKS.map(([words]) => pageLink(words))
    const plan = new PlanList({
      onChange: (change) => this.change(change),
      onSelect: (key) => this.select(key),
      onExport: () => this.ask("export"),
    })
    this.kin = new Kin({
      onIntend: (kind, name) => {
        if (kind === "tree") backFromDialog(this.root)
        this.intend(kind, null, this.runId, name)
      },
    })
    this.conversation = new Conversation({
      onOpen: (run) => this.intend("open-run", null, this.runId, run),
      onRead: (key) => this.read(key),
    })
    const { panes, timeline, links } = this
    this.lower = new Lower({ panes, plan, timeline, kin: this.kin.element, links, onRead })
    const main = el("div", { class: "main" }, map, this.lower.element)
    const stage = el("div", { class: "stage" }, main, el("div", { class: "side" }, this.inspector.element))
    this.root = el("div", { class: "live-workflow", "data-status": "opening" })
    this.judging = new Judging({ root: this.root })
    this.inspector.element.append(this.judging.element)
    this.presenting = new Presenting({
      root: this.root,
      may: () => Boolean(this.runId) && PACKED === null,
      onChange: () => this.queue(),
    })
    this.root.append(
      this.presenting.element,
      this.conversation.element,
      this.bar.element,
      this.notice,
      this.how,
      stage,
      this.reader.element,
    )
    this.watching = takePlace(parent, this.root, MOST_ABOVE_PX)
    this.reset()
    this.travels = () => this.travelled()
    addEventListener("popstate", this.travels)
    this.editorKeys = new EditorKeys({ onKey: (kind) => this.change({ kind }) })
    this.timer = setInterval(() => this.tick(), TICK_MS)
  }

  destroy() {
    clearInterval(this.timer)
    clearTimeout(this.telling)
    removeEventListener("popstate", this.travels)
    this.presenting.destroy()
    this.judging.destroy()
    this.replay.destroy()
    this.watching.disconnect()
    this.socket?.close()
    this.editorKeys.destroy()
    this.planEditing.destroy()
    this.graph.destroy()
    this.approval.destroy()
    this.reader.destroy()
    this.root.remove()
  }

  reset() {
    // The run itself as the server tells it, and what is shown: that, or a moment of it that is played again.
    this.model = this.live = new RunModel()
    this.editedText = ""
    if (this.editor) this.leaveEditor()
    this.editor = null
    this.asked = ""
    this.awaited = null
    this.selected = null
    this.following = true
    this.cancelling = false
    this.unknown = null
    this.connection = ""
    this.wasLost = false
    this.touched = { whole: true, steps: new Set() }
    this.stale = false
    this.lower.reset()
  }

  // Called at mount and at each change of data or theme.
  update({ data, setStateValue, setTriggerValue }) {
    this.setStateValue = setStateValue
    this.setTriggerValue = setTriggerValue
    this.editable = data.editable
    this.goOn = data.go_on
    this.ways = data.ways
    this.kept = data.kept
    this.related = data.kin ?? null
    this.turns = data.turns ?? null
    this.drawnEnded = data.ended
    if (data.run_id !== this.runId) this.openRun(data)
    this.takeEdited(data.edited)
    this.takeEditor(data.editor ?? null)
    this.planEditing.update(data)
    this.restyle()
    this.queue()
  }

  // Each drawing of the page sends the edited plan again; it is drawn only if it has changed.
  takeEdited(edited) {
    const text = edited ? JSON.stringify(edited) : ""
    if (text === this.editedText) return
    this.editedText = text
    this.model.edited = edited ?? null
  }

  // Takes what the open editor of the plan holds, and keeps the choice of the step at what the person does.
  takeEditor(editor) {
    const before = this.editor
    this.editor = editor
    this.root.toggleAttribute("data-editing", editor !== null)
    this.root.getRootNode().host.toggleAttribute(EDITING, editor !== null)
    if (editor === null) {
      if (before !== null) this.leaveEditor()
      return
    }
    if (before === null) this.inspector.edits(true)
    this.replay.leave()
    const chosen = this.chosenIn(editor, before)
    if (chosen === undefined) return
    this.following = false
    this.selected = chosen
  }

  // The browser's Back and Forward: an edit that the address names no more is closed, one that it names is opened.
  travelled() {
    const named = new URLSearchParams(location.search)
    if (!this.runId || named.get("run") !== this.runId) return
    if (named.has("tour")) return // it opens and closes its own edit
    if (this.editor === null && named.has("edit")) this.intend("kept-edit", null, this.runId, named.get("edit"))
    else if (this.editor !== null && !named.has("edit")) this.change({ kind: "close" })
  }

  // What had the focus in the editor is gone with it.
  leaveEditor() {
    this.inspector.edits(false)
    returnAfter(`[${EDITING}]`, () => this.bar.stop(), document, DRAWN_MS)
  }

  // Returns the step whose fields are shown from now on; undefined: as before.
  chosenIn({ steps, show }, before) {
    const there = (key) => steps.some((step) => step.key === key)
    const asked = show.join()
    if (asked !== this.asked) {
      this.asked = asked
      if (there(show.at(-1))) return show.at(-1)
    }
    if (before === null) {
      const opened = this.planEditing.openedIn(this.runId)
      if (this.leads) this.afterwards = () => this.inspector.field
      this.leads = false
      if (there(opened)) return opened
      const changed = this.model.edited?.steps.find(({ key, change }) => change && there(key))
      return there(this.selected) ? undefined : (changed ?? steps[0])?.key
    }
    const added = steps.find(({ key }) => !before.steps.some((step) => step.key === key))
    if (added && this.awaited === "added") {
      this.awaited = null
      this.afterwards = () => this.inspector.field
      return added.key
    }
    const gone = before.steps.findIndex(({ key }) => key === this.selected)
    return gone < 0 || there(this.selected) ? undefined : steps[Math.min(gone, steps.length - 1)]?.key
  }

  get waiting() {
    return this.planEditing.waiting
  }

  change(change) {
    if (ADDS.has(change.kind)) this.awaited = "added"
    this.planEditing.make(change)
  }

  // Called when a run was requested and has not begun yet.
  get opening() {
    return Boolean(this.runId) && this.model.run === null && this.unknown === null
  }

  openRun(data) {
    this.socket?.close()
    this.socket = null
    this.replay.forget()
    this.runId = data.run_id
    this.reset()
    this.panes.arrange(this.model)
    if (!this.runId) return
    this.socket = this.connect(this.runId, {
      onMessage: (message) => this.receive(message),
      onState: (state) => {
        this.connection = state
        this.wasLost ||= state === "reconnecting"
        this.queue()
      },
      finished: () => this.live.ended,
    })
  }

  restyle() {
    restyled(this.root)
    this.graph.restyle(this.root)
  }

  receive(message) {
    if (message.type === "unknown") {
      this.unknown = message.message
      this.queue()
      return
    }
    const touched = this.live.apply(message)
    if (this.model === this.live) this.took(touched)
    this.tellEnd()
    this.replay.begin()
  }

  // Has the page show what a message changed in the model.
  took(touched) {
    for (const key of touched.steps) this.touched.steps.add(key)
    // Text alone refills its pane in the next frame; the rest of the page follows with the timer.
    const whole = touched.structure || touched.run
    if (whole && this.following) this.followLatest()
    this.stale = true
    this.queue(whole)
  }

  // Draws another model of the same run: the replay's, or the live one again.
  showModel(model) {
    model.edited = this.model.edited
    this.model = model
    this.following = true
    this.followLatest()
    this.root.toggleAttribute("data-replay", model.replayed)
    this.queue()
  }

  // Python draws the page's own parts (continuing, the editor) once the log has the run's end. The page tells a busy
  // server again until it has drawn them. It uses a state: of two waiting triggers only the later one would arrive. A
  // restarted server does not know this page and does not answer: then the page is loaded again, unless somebody has
  // typed another task.
  tellEnd(told = 0) {
    clearTimeout(this.telling)
    if (!this.live.ended || this.live.stopped || this.drawnEnded) return
    if (told < MOST_TELLS || !this.wasLost) this.setStateValue("ended", `${this.runId} ${told}`)
    else if (document.querySelector(TASK_FIELD)?.value.trim() === this.live.run.task.trim()) location.reload()
    else return
    this.telling = setTimeout(() => this.tellEnd(told + 1), TELL_AGAIN_MS)
  }

  // While nobody has chosen a step, the panel shows the one that began last, and at the end the one with the answer.
  followLatest() {
    const { model } = this
    const steps = [...model.steps.values()]
    const begun = steps.filter((step) => step.status === "running")
    const latest = begun.toSorted((a, b) => b.started_ms - a.started_ms)[0]
    const asked = model.ended ? undefined : steps.find((step) => step.asked)
    if (latest) this.selected = pathKey(latest.path)
    else if (asked) this.selected = pathKey(asked.path)
    else if (model.ended && steps.length)
      this.selected = stepInAddress(this.runId, model) ?? pathKey(whatMatters(model, steps).path)
    else if (!steps.length) this.selected = null
    // Its plan is whole, and its first step begins in a moment.
    else if (this.selected === null && model.run?.status === "running") this.selected = pathKey(steps[0].path)
  }

  // One frame shows all that arrived since the last one. A hidden tab has no frames, so it uses a timer.
  queue(whole = true) {
    this.touched.whole ||= whole
    if (this.queued) return
    this.queued = true
    const render = () => {
      this.queued = false
      this.render()
    }
    if (document.hidden) setTimeout(render, 200)
    else requestAnimationFrame(render)
  }

  render() {
    const { model, touched, selected } = this
    this.touched = { whole: false, steps: new Set() }
    if (!touched.whole) {
      this.panes.show(model, touched.steps, selected)
      return
    }
    // Without a run there is nothing to draw; its parts are there before they are drawn, because they are measured.
    const nothing = model.run === null && model.edited === null && !this.opening
    this.root.toggleAttribute("data-empty", nothing)
    this.how.hidden = !nothing
    this.presenting.show(visible(model.run?.task ?? ""))
    this.panes.arrange(model)
    this.panes.show(model, null, selected)
    this.graph.show(model, selected)
    this.timeline.show(model, selected)
    // Folded, the row has no room for it, and stacks say their status in words.
    this.statuses.hidden = this.graph.view === "folded"
    setText(this.statuses, model.edited ? editedLegend(model.edited) : legendText(model))
    this.showFigures()
    this.empty.hidden = model.run === null || model.ordered().length > 0
    setText(this.empty, model.ended ? "No workflow came out of this run." : conductorDoing(model))
    showShare(this.empty, model)
    setText(this.planButton, planText(model))
    this.planButton.hidden = model.run === null
    this.planButton.setAttribute("aria-pressed", selected === null ? "true" : "false")
    // Beside these parts its row has the width that it keeps.
    this.showTwin()
    this.planEditing.show(model, this.selected)
    this.legend.hidden = !this.planEditing.words.hidden
    this.keys.hidden = this.editor !== null
    this.notice.hidden = this.unknown === null
    setText(this.notice, this.unknown ?? "")
    this.kin.show(this.related, this.editor !== null)
    this.conversation.show(this.turns, model)
    this.links[0].hidden = PACKED !== null || model.run === null
    this.links[1].hidden = this.links[0].hidden || model.rounds.size < 2
    this.links.forEach((link, index) => (link.href = LINKS[index][1] + encodeURIComponent(this.runId ?? "")))
    this.root.dataset.status = model.run?.status ?? (this.opening ? "opening" : "none")
    const { afterwards } = this
    this.afterwards = null
    afterwards?.()?.focus({ preventScroll: true })
  }

  // The rows of a list take the place of the buttons, and its newest lines that of the panes.
  showTwin() {
    const listed = this.graph.view === "list"
    this.twin.element.hidden = listed
    this.root.toggleAttribute("data-listed", listed && this.graph.wanted === "list")
    this.twin.show(this.model, this.selected, this.graph.stacks())
  }

  unfold({ id, keys }) {
    this.graph.unfold(id)
    this.showTwin()
    this.twin.focus(keys[0])
  }

  // Returns the id of the stack in which the step is again; null: it was in none.
  fold(key) {
    const stack = this.graph.foldAgain(key)
    if (stack === null) return null
    this.following = false
    this.selected = null // a selected step is never folded
    this.showTwin()
    this.queue()
    return stack
  }

  // Updates what changes with every token or second.
  showFigures() {
    this.stale = false
    const outcome = this.bar.show(this.model, this)
    this.lower.show(this.model, outcome, this.panes.isRead(), this)
    this.replay.show()
    this.inspector.show(this.model, this.selected, this)
    this.judging.show(this.model, this.selected, this)
  }

  tick() {
    if (this.model.run === null || document.hidden || (this.model.ended && !this.stale)) return
    if (this.model.replayed && !this.replay.playing && !this.stale) return
    if (this.stale) this.showFigures()
    else this.bar.show(this.model, this)
    this.panes.tick(this.model)
    this.graph.repaint()
  }

  select(key) {
    this.following = false
    if (key === this.selected) return
    this.selected = key
    this.queue()
  }

  selectedPath() {
    return this.selected === null ? null : this.selected.split(".").map(Number)
  }

  open(key) {
    this.select(key)
    this.render()
    this.inspector.focus()
  }

  // Shows what a step, or for null the Conductor, read of the conversation before the task.
  read(key) {
    this.select(key)
    this.render()
    this.inspector.choose(key === null ? "Prompt" : "What it saw")
    this.inspector.focus()
  }

  followRun() {
    this.following = true
    this.followLatest()
    this.queue()
  }

  intend(kind, path = null, runId = this.runId, name = "") {
    this.setTriggerValue("intent", { kind, path, run_id: runId, name })
  }

  // Opens a dialog of the page.
  ask(kind, path = null) {
    backFromDialog(this.root)
    this.intend(kind, path)
  }

  // Opens the editor of the plan at a step. `leads`: the focus goes into its fields.
  edit(path, leads = byKeyboard(this.root)) {
    this.leads = leads
    if (path?.length === 1) this.select(pathKey(path))
    this.intend("edit", path)
  }

  async cancel() {
    this.cancelling = true
    this.queue()
    try {
      const response = await fetch(runUrl(this.runId, "cancel"), { method: "POST" })
      if (!response.ok) throw new Error(`${response.status}`)
      cancelledHere.add(this.runId)
    } catch (error) {
      this.cancelling = false
      this.unknown = `The run could not be cancelled (${error.message}). It may have ended: load the page anew.`
      this.queue()
    }
  }
}

// Changes that bring another step.
const ADDS = new Set(["add", "copy", "first"])

const LINKS = [
  ["Who saw what in this run", "context?run="],
  ["Rounds beside each other", "compare?rounds="],
]

const fromServer = (runId, told) => new RunSocket(runId, told)
