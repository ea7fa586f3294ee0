// What all files have in common that open without a server.

import { el } from "./dom.js"
import { plural } from "./format.js"
import { visible } from "./text.js"

// Says what a file is, and what it does not prove. `facts` are sentences; what is false is left out.
export function fileHead(title, facts, { written_by: program, written_at_utc: at, redactions }) {
  const said = [
    `Written by ${program} on ${at.slice(0, 10)}.`,
    ...facts,
    redactions > 0 && `${plural(redactions, "passage")} hidden.`,
    "An unsigned copy: nothing proves that it is unchanged.",
  ]
  const heading = el("h1", { dir: "auto" }, visible(title))
  heading.title = visible(title)
  return el("header", {}, heading, el("p", {}, said.filter(Boolean).join(" ")))
}

// Returns what stands in the file as JSON, compressed, in base64.
export async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))
  return JSON.parse(await new Response(stream).text())
}

export const showFault = (what) => (error) => {
  const fault = el("p", { class: "fault", role: "alert" }, `${what} cannot be shown: ${error.message}`)
  document.querySelector("main").prepend(fault)
}
