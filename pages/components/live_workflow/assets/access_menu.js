// The menu of a step's access, for keyboards and screen readers and for a click on a step's handle: who may see the step,
// and what it sees. An item is one access; Enter or Space gives or cuts it, Delete cuts it.

import { el, setAttributes, setText } from "./dom.js"
import { isolated } from "./text.js"

const CUTS = new Set(["Delete", "Backspace"])

export class AccessMenu {
  // `onChange` is given a change of the plan, `onLook` the edge that an item is about or null, `onClose` the step's key.
  constructor({ onChange, onLook, onClose }) {
    Object.assign(this, { onChange, onLook, onClose })
    this.key = null
    this.items = new Map()
    this.heading = el("p", { class: "access-title" })
    this.readers = el("div", { role: "group" })
    this.reads = el("div", { role: "group" })
    this.keys = el("p", { class: "muted small" }, "Space gives or cuts · Delete cuts · Esc closes")
    this.element = el("div", { class: "access-menu", role: "menu", hidden: true })
    this.element.append(this.heading, this.readers, this.reads, this.keys)
    this.element.addEventListener("keydown", (event) => this.press(event))
    this.element.addEventListener("focusin", (event) => this.look(event.target))
    this.element.addEventListener("focusout", (event) => {
      if (this.key !== null && !this.element.contains(event.relatedTarget)) this.close(false)
    })
  }

  // `at`: the item that gets the focus, as {read, reader}; without it the first one.
  open(key, steps, at = null) {
    this.key = key
    this.element.hidden = false
    this.show(steps)
    this.element.scrollTop = 0
    const items = [...this.element.querySelectorAll("button")]
    const named = items.find(({ dataset }) => dataset.read === at?.read && dataset.reader === at?.reader)
    ;(named ?? items[0])?.focus()
  }

  // Draws the menu again for the plan as it is by now.
  show(steps) {
    if (this.key === null) return
    const own = steps.find((step) => step.key === this.key)
    if (!own || steps.length < 2) return this.close()
    setText(this.heading, `Access of step ${own.number} · ${isolated(own.agent)}`)
    this.element.setAttribute("aria-label", this.heading.textContent)
    const others = steps.filter((step) => step !== own)
    for (const [key, item] of this.items) {
      if (others.some((step) => step.key === key)) continue
      item.remove()
      this.items.delete(key)
    }
    this.fill(this.readers, `May see step ${own.number}`, own, steps.slice(own.number + 1))
    this.fill(this.reads, `Step ${own.number} sees`, own, steps.slice(0, own.number))
  }

  fill(group, name, own, others) {
    const title = group.querySelector("p") ?? el("p", { class: "access-group muted", "aria-hidden": "true" })
    if (!title.isConnected) group.prepend(title)
    setText(title, name)
    group.setAttribute("aria-label", name)
    group.hidden = others.length === 0
    others.forEach((step, place) => {
      const item = this.item(step.key)
      const [read, reader] = step.number > own.number ? [own, step] : [step, own]
      const sees = reader.reads.includes(read.number)
      setText(item, `${sees ? "☑" : "☐"} step ${step.number} · ${isolated(step.agent)}`)
      setAttributes(item, {
        "aria-checked": sees ? "true" : "false",
        "aria-label": `Step ${reader.number} sees step ${read.number}, ${isolated(step.agent)}`,
        "data-read": read.key,
        "data-reader": reader.key,
      })
      if (group.children[place + 1] !== item) group.insertBefore(item, group.children[place + 1] ?? null)
    })
  }

  item(key) {
    if (!this.items.has(key)) {
      const item = el("button", { type: "button", role: "menuitemcheckbox", tabindex: "-1" })
      item.addEventListener("click", () => this.turn(item))
      this.items.set(key, item)
    }
    return this.items.get(key)
  }

  turn(item, kind = item.getAttribute("aria-checked") === "true" ? "cut" : "give") {
    if (kind === "cut" && item.getAttribute("aria-checked") !== "true") return
    this.onChange({ kind, step: Number(item.dataset.reader), read: Number(item.dataset.read) })
  }

  look({ dataset: { read, reader } }) {
    this.onLook(read === undefined ? null : { read, reader })
  }

  press(event) {
    const items = [...this.element.querySelectorAll("button")]
    const at = items.indexOf(event.target)
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key]
    if (next !== undefined) items[(next + items.length) % items.length].focus()
    else if (CUTS.has(event.key) && at >= 0) this.turn(items[at], "cut")
    else if (event.key === "Escape" || event.key === "Tab") this.close()
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  close(back = true) {
    const { key } = this
    if (key === null) return
    this.key = null
    this.element.hidden = true
    this.onLook(null)
    if (back) this.onClose(key)
  }
}
