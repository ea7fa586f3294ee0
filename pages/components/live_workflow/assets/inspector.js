// The panel on the right: output, inputs, messages and cost of the selected step, or the Conductor's completion.

import { PACKED } from "./base.js"
import { el, setText } from "./dom.js"
import { mayEdit, ownFields } from "./edit_step.js"
import { agentColour, pathKey } from "./format.js"
import { innerPlanTabs, planTabs } from "./inspect_plan.js"
import { stepTabs } from "./inspect_step.js"
import { structureButtons } from "./plan_list.js"
import { setWithChips } from "./task_words.js"
import { isolated, visible } from "./text.js"

// A file that shows a run without a server changes nothing.
const { Edit, ...read } = stepTabs
const ownTabs = PACKED ? read : stepTabs

export class Inspector {
  constructor({ onChange, onType, onEdit, onAsk, onSelect, onFollow, onRead }) {
    this.onChange = onChange
    this.onType = onType
    this.onRead = onRead
    this.onAsk = onAsk
    this.onEdit = onEdit
    this.onSelect = onSelect
    this.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "About the selected step" })
    this.tabs.addEventListener("keydown", (event) => this.key(event))
    this.dot = el("span", { class: "dot", "aria-hidden": "true" })
    this.heading = el("h3", { tabindex: "-1" })
    this.follow = el("button", { type: "button", class: "quiet", onclick: onFollow }, "Follow the run")
    this.subtitle = el("p", { class: "muted instruction", dir: "auto" })
    this.body = el("div", { class: "inspector-body", role: "tabpanel", tabindex: "0" })
    this.structure = structureButtons(onChange, () => ({ key: this.selected }))
    const head = el(
      "div",
      { class: "inspector-head" },
      this.dot,
      this.heading,
      el("span", { class: "spring" }),
      this.follow,
      this.structure.element,
    )
    this.scroller = el("div", { class: "inspector-scroll" }, head, this.subtitle, this.body)
    this.element = el("aside", { class: "card inspector", "aria-label": "Inspector" }, this.tabs, this.scroller)
    this.wanted = { step: "What it saw", plan: "Plan" }
    this.shown = null
  }

  // `selected`: a step's key, or null for the Conductor's own work. `editor`: the open editor of the plan, or null.
  show(model, selected, { following, editable, editor, waiting }) {
    Object.assign(this, { model, selected, editable, editor, waiting })
    this.element.dataset.step = selected ?? ""
    const step = selected === null ? null : model.step(selected)
    const own = ownFields(editor, step, selected)
    this.kind = step || own ? "step" : "plan"
    const opened = step && model.rounds.has(pathKey(step.path))
    // A step that has not run, because it is added or there is no run yet, saw nothing.
    const tabs = step ? { ...ownTabs, ...(opened ? innerPlanTabs : {}) } : own ? { Edit } : planTabs
    // If this step lacks the chosen tab, the choice is kept for the next step that has it.
    // Until somebody chooses, a step that called tools shows these.
    const called = step?.turns?.length && !this.picked && this.wanted.step !== "Edit"
    const wanted = called ? "Output" : this.wanted[this.kind]
    const tab = wanted in tabs ? wanted : Object.keys(tabs)[0]
    this.tab = tab
    this.follow.hidden = following || model.ended || model.run === null
    this.showTabs(Object.keys(tabs))
    this.showHead(model, step, tab === "Edit" ? own : undefined)
    this.structure.element.hidden = tab !== "Edit" || !own
    if (own) this.structure.show(own.number, editor.steps.length)
    const identity = `${model.run?.run_id}/${selected}/${tab}`
    if (identity !== this.shown) {
      this.shown = identity
      this.scroller.scrollTop = 0
      this.body.replaceChildren()
      const { onChange, onType, onEdit, onAsk, onSelect, onRead } = this
      this.update = tabs[tab](this.body, { onChange, onType, onEdit, onAsk, onSelect, onRead })
    }
    this.body.setAttribute("aria-label", tab)
    this.update(model, step, this)
  }

  // `own`: the step as it is edited.
  showHead(model, step, own) {
    const agent = own?.agent ?? step?.agent
    const index = agent === undefined ? null : model.agentIndex(agent)
    this.dot.style.setProperty("--agent", agentColour(index))
    if (this.subtitle.hidden !== (own !== undefined)) {
      this.subtitle.hidden = own !== undefined
      // Other content is no old content that has moved: nobody looks for it where it was.
      if (!this.body.matches(":focus-within")) this.scroller.append(this.body)
    }
    if (own)
      setText(
        this.heading,
        `Step ${own.number} · ${isolated(own.agent)}${own.before === null && model.run ? ", new" : ""}`,
      )
    else if (step) {
      const then = model.edited ? ", as it ran" : ""
      setText(this.heading, `Step ${pathKey(step.path)} · ${isolated(step.agent)}${then}`)
      setWithChips(this.subtitle, step.instruction, visible)
    } else {
      const conductor = model.run?.conductor
      setText(this.heading, conductor ? `Conductor · ${visible(conductor.name)}` : "The plan")
      setWithChips(this.subtitle, conductor ? "Writes who does what, and who may see what." : "", visible)
    }
  }

  showTabs(names) {
    if (this.tabNames?.join() !== names.join()) {
      this.tabNames = names
      this.tabs.replaceChildren(
        ...names.map((name) => el("button", { type: "button", role: "tab", onclick: () => this.choose(name) }, name)),
      )
    }
    for (const button of this.tabs.children) {
      const chosen = button.textContent === this.tab
      button.setAttribute("aria-selected", chosen ? "true" : "false")
      button.tabIndex = chosen ? 0 : -1
    }
  }

  choose(name) {
    this.wanted[this.kind] = name
    if (this.kind === "step") this.picked = true
    const { model, selected, editable, editor, waiting } = this
    this.show(model, selected, { following: this.follow.hidden, editable, editor, waiting })
    const step = model.step(selected)
    if (name === "Edit" && editor === null && step && mayEdit(model, step, editable)) this.onEdit(step.path, false)
  }

  // Shows the fields of the chosen step from now on; false: what was shown before.
  edits(on) {
    const { wanted } = this
    if (on && wanted.step !== "Edit") this.before = wanted.step
    if (on || wanted.step === "Edit") wanted.step = on ? "Edit" : (this.before ?? "What it saw")
  }

  get field() {
    return this.body.querySelector('[data-field="instruction"]')
  }

  key(event) {
    const names = this.tabNames
    const at = names.indexOf(this.tab)
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key]
    if (to === undefined) return
    event.preventDefault()
    const next = names[(to + names.length) % names.length]
    this.choose(next)
    ;[...this.tabs.children].find((button) => button.textContent === next).focus()
  }

  focus() {
    this.heading.focus()
  }
}
