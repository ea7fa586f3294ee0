// A long list of outputs that a step did not read, as one line per agent. A line unfolds into its outputs in place.

import { el, setText } from "./dom.js"
import { byAgent } from "./fold.js"
import { plural } from "./format.js"
import { isolated } from "./text.js"

// Draws `parts`. `make` draws one by itself; `name` begins the keys of what is unfolded in `open`; `look` is the class of
// the box around the lines.
export function partBoxes(model, parts, { make, name, look, open }) {
  const groups = byAgent(parts)
  if (groups === null) return parts.map(make)
  return groups.flatMap((group) =>
    group.parts.length > 1 ? [groupBox(model, group, { make, name, look, open })] : group.parts.map(make),
  )
}

function groupBox(model, group, { make, name, look, open }) {
  const key = `${name} ${group.agent}`
  const tokens = group.parts.reduce((total, part) => total + (part.tokens ?? 0), 0)
  const fold = el("button", { type: "button", class: "quiet fold" })
  const said = `${group.which} ${isolated(group.agent)}`
  const header = el(
    "header",
    {},
    el("span", { class: "dot", "aria-hidden": "true" }),
    el("b", { class: "group-name" }, said),
    tokens ? el("span", { class: "muted number" }, plural(tokens, "token")) : null,
    el("span", { class: "spring" }),
    fold,
  )
  const index = model.agentIndex(group.agent)
  header.style.setProperty("--agent", `var(--agent-${index === null ? "none" : index % 8})`)
  const inside = el("div", { class: "read-list" })
  const draw = () => {
    const shown = open.get(key) === true
    setText(fold, shown ? "Fold" : "Show")
    fold.setAttribute("aria-label", `${fold.textContent} ${said}`)
    fold.setAttribute("aria-expanded", shown ? "true" : "false")
    inside.replaceChildren(...(shown ? group.parts.map(make) : []))
  }
  fold.addEventListener("click", () => {
    open.set(key, open.get(key) !== true)
    draw()
  })
  draw()
  return el("div", { class: `${look} group` }, header, inside)
}
