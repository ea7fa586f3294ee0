// A button that opens a menu below it.

import { el } from "./dom.js"

export class Menu {
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
