// In the line of the tabs, where nothing is pushed away: the run that this one came from and what was changed since, or
// the newest run that was made of it.

import { el, pageLink, setText } from "./dom.js"
import { visible } from "./text.js"

export class Kin {
  // `onIntend` is given the kind of an intent and the name of a run.
  constructor({ onIntend }) {
    const button = (words, kind, of) =>
      el("button", { type: "button", class: "quiet", onclick: () => onIntend(kind, of(this.kin)) }, words)
    this.run = button("", "open-run", ({ run }) => run)
    this.said = el("span", { class: "muted kin-said" })
    this.compare = pageLink("Compare")
    this.tree = button("", "tree", () => "")
    const { run, said, compare, tree } = this
    this.element = el("div", { class: "kin", role: "group", "aria-label": "Related runs" }, run, said, compare, tree)
  }

  // `kin`: see `lineage.py`; null: the run has no relatives. `hides`: whether the line has no room for them.
  show(kin, hides) {
    this.kin = kin
    this.element.hidden = !kin || hides
    if (!kin) return
    setText(this.run, visible(kin.label))
    this.run.title = visible(`Open run ${kin.run}`)
    setText(this.said, visible(kin.said))
    this.said.title = visible(kin.title)
    this.compare.href = kin.compare
    setText(this.tree, visible(kin.tree))
    this.tree.hidden = !kin.tree
  }
}
