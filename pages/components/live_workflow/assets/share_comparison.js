// Entry of the component that hands a comparison over: the dialog of the Run page, for several runs.

import { BASE } from "./base.js"
import { el } from "./dom.js"
import { Share } from "./share.js"
import { sheets } from "./sheets.js"

const own = await sheets(["style.css"])
const shares = new WeakMap()
const WORDS = {
  title: "Share this comparison",
  hint: "Copy the address of this comparison, or save it as a file",
  address: "The address opens this comparison for whoever can reach this inspector.",
  holds: "The file holds the comparison and the whole runs.",
  wait: "A run goes on. The file can be saved when all have ended.",
}

export default function mount({ parentElement, data }) {
  let share = shares.get(parentElement)
  if (!share) {
    parentElement.adoptedStyleSheets = own
    share = new Share(WORDS)
    parentElement.querySelector(".reserved")?.remove()
    parentElement.append(el("div", { class: "live-workflow" }, share.opener, share.element))
    shares.set(parentElement, share)
  }
  const [a, b, ...more] = data.run_ids
  const query = { a, b, ...(more.length > 0 && { more: more.join(",") }) }
  const file = `comparison-${data.run_ids.slice(0, 3).join("-")}.html`
  const url = () => new URL("api/comparison/share", BASE)
  share.offer({ query, url, body: { run_ids: data.run_ids }, file }, data.ended)
}
