// The line with the state of the run: status, simulated or not, time, tokens, cost, shape, and the possible actions.

import { PACKED } from "./base.js"
import { el, setClass, setText } from "./dom.js"
import { basis, count, plural, seconds, usdInLine } from "./format.js"
import { Share } from "./share.js"
import { RUN_STATUS, STEP_STATUS } from "./status.js"

export class Strip {
  constructor({ replay, recorded, onCancel, onEdit }) {
    this.recorded = recorded
    this.pill = el("span", { class: "pill", role: "status", "aria-live": "polite" })
    this.simulated = el(
      "span",
      { class: "pill simulated", title: "No real model answers in this run" },
      "Simulated workers",
    )
    this.time = el("span", { class: "number time", title: "Time since the run began" })
    this.tokens = el("span", { class: "number tokens", title: "Input and output tokens of Conductor and workers" })
    this.cost = el("span", { class: "number cost", title: "What this run itself spent" })
    this.shape = el("span", { class: "shape" })
    this.link = el("span", { class: "link-state" })
    this.cancel = el("button", { type: "button", onclick: onCancel }, "Cancel")
    this.edit = el("button", { type: "button", onclick: onEdit }, "Edit plan")
    this.sharing = new Share()
    this.share = this.sharing.opener
    this.aboutRun = [this.simulated, this.time, this.tokens, this.cost, this.cancel, this.edit, this.share]
    this.came = el("span", { class: "pill replayed", title: "It came with the program" }, "Recorded")
    const { pill, simulated, came, time, tokens, cost, shape, link } = this
    this.facts = el("div", { class: "facts" }, pill, simulated, came, time, tokens, cost, shape, link)
    this.element = el(
      "div",
      { class: "strip" },
      this.facts,
      recorded.element,
      replay.element,
      (this.actions = el("div", { class: "actions" }, replay.opener, this.cancel, this.edit, this.share)),
      this.sharing.element,
    )
  }

  // Returns where the focus can stay after something on the page has closed: on no button that a hasty Enter could press
  // by mistake.
  stop() {
    const { edit, element } = this
    if (edit.checkVisibility() && !edit.disabled) return edit
    element.tabIndex = -1
    return element
  }

  show(model, { connection, cancelling, editable, opening }) {
    const { run } = model
    for (const part of this.aboutRun) part.hidden = run === null
    this.came.hidden = !run?.imported?.recorded || model.replayed
    this.actions.hidden = model.replayed || this.recorded.active
    this.shape.hidden = model.replayed
    this.recorded.element.hidden = !this.recorded.active
    this.facts.hidden = this.recorded.active
    if (this.recorded.active) return
    if (run === null && model.edited) {
      setText(this.pill, "○ Not run yet")
      setClass(this.pill, "pill idle")
      setText(this.shape, "Nothing is sent before you run this plan.")
      return
    }
    if (run === null) {
      setText(this.pill, opening ? "○ Opening the run" : "○ No run yet")
      setClass(this.pill, "pill idle")
      setText(this.shape, opening ? "" : "Type a task or take an example, then press Run.")
      return
    }
    this.sharing.show(run, model.ended && !model.stopped)
    const status = cancelling && !model.ended ? { glyph: "■", word: "Cancelling" } : RUN_STATUS[run.status]
    setText(this.pill, `${status.glyph} ${status.word}${this.progress(model)}`)
    setClass(this.pill, `pill ${cancelling && !model.ended ? "cancelled" : run.status}`)
    this.simulated.hidden = !run.simulated
    setText(this.time, seconds(model.elapsedMs()))
    setText(this.tokens, `${count(model.totalTokens())} tokens`)
    this.showCost(model)
    setText(this.shape, model.shape || (model.planning ? planningNow(model) : ""))
    this.shape.title = model.shape
    setText(this.link, { connecting: "connecting…", reconnecting: "connection lost, reconnecting…" }[connection] ?? "")
    if (PACKED) this.edit.hidden = this.share.hidden = true
    this.cancel.disabled = model.ended || cancelling
    this.cancel.hidden = model.ended
    this.edit.disabled = !editable || !model.changeable || model.steps.size === 0
    this.edit.title = !model.changeable
      ? "The plan can be edited when the run is over, or waits"
      : model.ended
        ? "Change the plan and run what changed"
        : "Change the steps that have not run"
  }

  showCost(model) {
    const { total, known } = model.cost()
    const most = model.run.cost_at_most && total > 0 ? "at most " : ""
    setText(this.cost, `${most}${usdInLine(total, known)}`)
    const how = basis(model.run)
    this.cost.title = `What this run itself spent, Conductor and workers${how ? `, ${how}` : ""}${total === null ? ": the price of a part is unknown" : ""}`
  }

  progress(model) {
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
