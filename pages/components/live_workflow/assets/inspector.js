// The panel on the right: output, inputs, messages and cost of the selected step, or the Conductor's completion.

import { el, setText } from "./dom.js"
import { pathKey } from "./format.js"
import { innerPlanTabs, planTabs } from "./inspect_plan.js"
import { stepTabs } from "./inspect_step.js"
import { setWithChips } from "./task_words.js"
import { isolated, visible } from "./text.js"

export class Inspector {
  constructor({ onEdit, onAsk, onSelect, onFollow, onRead }) {
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
    const head = el(
      "div",
      { class: "inspector-head" },
      this.dot,
      this.heading,
      el("span", { class: "spring" }),
      this.follow,
    )
    this.scroller = el("div", { class: "inspector-scroll" }, head, this.subtitle, this.body)
    this.element = el("aside", { class: "card inspector", "aria-label": "Inspector" }, this.tabs, this.scroller)
    this.wanted = { step: "What it saw", plan: "Plan" }
    this.shown = null
  }

  // `selected`: a step's key, or null for the Conductor's own work.
  show(model, selected, { following, editable }) {
    this.model = model
    this.selected = selected
    this.editable = editable
    const step = selected === null ? null : model.step(selected)
    const added = step ? null : model.editedStep(selected)
    if (added) return this.showAdded(added)
    this.element.classList.remove("added")
    this.kind = step ? "step" : "plan"
    const opened = step && model.rounds.has(pathKey(step.path))
    const tabs = step ? { ...stepTabs, ...(opened ? innerPlanTabs : {}) } : planTabs
    // If this step lacks the chosen tab, the choice is kept for the next step that has it.
    const tab = this.wanted[this.kind] in tabs ? this.wanted[this.kind] : Object.keys(tabs)[0]
    this.tab = tab
    this.follow.hidden = following || model.ended || model.run === null
    this.showTabs(Object.keys(tabs))
    this.showHead(model, step)
    const identity = `${model.run?.run_id}/${selected}/${tab}`
    if (identity !== this.shown) {
      this.shown = identity
      this.scroller.scrollTop = 0
      this.body.replaceChildren()
      const { onEdit, onAsk, onSelect, onRead } = this
      this.update = tabs[tab](this.body, { onEdit, onAsk, onSelect, onRead })
    }
    this.body.setAttribute("aria-label", tab)
    this.update(model, step, this)
  }

  // Shows a step that is not in the run, because it is being added to the plan, or because there is no run yet.
  showAdded({ number, agent, instruction, change }) {
    const index = this.model.agentIndex(agent)
    this.shown = null
    this.element.classList.add("added")
    this.dot.style.setProperty("--agent", `var(--agent-${index === null ? "none" : index % 8})`)
    setText(this.heading, `Step ${number} · ${isolated(agent)}${change === "new" ? ", new" : ""}`)
    setWithChips(this.subtitle, instruction, visible)
    this.body.replaceChildren(
      el("p", { class: "muted" }, "It has not run, so it saw nothing yet. Its fields are in the editor above."),
    )
  }

  showHead(model, step) {
    const index = step ? model.agentIndex(step.agent) : null
    this.dot.style.setProperty("--agent", `var(--agent-${index === null ? "none" : index % 8})`)
    if (step) {
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
    this.show(this.model, this.selected, { following: this.follow.hidden, editable: this.editable })
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
