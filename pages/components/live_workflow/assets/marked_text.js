// The pieces of two compared texts as one Markdown text.

import { count } from "./format.js"

// Characters of private use stand around what differs while the Markdown is read. No model's text keeps its own.
export const OPENS = { removed: "\ue000", added: "\ue001", skipped: "\ue002" }
export const CLOSES = "\ue003"
const OURS = /[\ue000-\ue003]/g
export const EACH = /([\ue000-\ue003])/
// What makes a line a heading, an item, a quotation or a row of a table stays before the mark.
const LEAD = /^\s*(?:(?:[-*+]|\d+[.)])\s+|#{1,6}\s+|>\s?|\|\s?)*/
// A fence, and the line below the head of a table, are no text.
const NO_TEXT = /^\s*(?:```|~~~)|^[\s|:-]*$/

// Returns the pieces as one Markdown text in which marks stand around what differs. `show` makes what is shown of a text.
export function marked(pieces, show) {
  let found = ""
  for (const [kind, text, words, of] of pieces) {
    if (kind === "skipped") found += ` ${OPENS.skipped}… ${skippedWords(words, of)} …${CLOSES} `
    else if (kind === "same") found += show(text).replace(OURS, "\ufffd")
    else
      for (const line of show(text)
        .replace(OURS, "\ufffd")
        .split(/(?<=\n)/)) {
        const begins = found === "" || found.endsWith("\n")
        const lead = begins ? LEAD.exec(line)[0] : ""
        const rest = line.slice(lead.length).replace(/\s+$/, "")
        const end = line.slice(lead.length + rest.length)
        const plain = rest === "" || (begins && NO_TEXT.test(line))
        found += plain ? line : `${lead}${OPENS[kind]}${rest}${CLOSES}${end}`
      }
  }
  return found
}

export const skippedWords = (words, of) =>
  `${count(words)} ${{ same: "words the same", more: "more words" }[of] ?? `words ${of}`}`
