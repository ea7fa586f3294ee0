// Instructions name the task by a macro. What people read never shows it: it is left out where room is dear, and a chip
// elsewhere.

import { el } from "./dom.js"

export const MACRO = "{question}"
const NOTHING_MORE = /^["'”»]?[.\s]*$/
const LINKS = new Set(" \n\t\r:,;–-=(\"'“«")
// What only introduces the task, after the end of a sentence.
const ITS_NAME = /(^|[.!?:;\n])\s*(?:the |this |your )?(?:task|question|problem)$/i
const LONGEST_NAME = 30

// Returns an instruction without the macro; in the middle of a sentence the task is named.
export function withoutTask(instruction) {
  const at = instruction.lastIndexOf(MACRO)
  if (at < 0) return instruction
  const ends = NOTHING_MORE.test(instruction.slice(at + MACRO.length))
  const left = ends ? beforeTask(instruction.slice(0, at)) : instruction
  return left.replaceAll(MACRO, "the task").trim() || "the task"
}

function beforeTask(text) {
  let end = text.length
  while (end > 0 && LINKS.has(text[end - 1])) end -= 1
  const named = ITS_NAME.exec(text.slice(Math.max(0, end - LONGEST_NAME), end))
  if (named === null || end === text.length) return text.slice(0, end)
  return text.slice(0, end - named[0].length + named[1].length)
}

// Returns the parts of an instruction, with a chip for each macro. `show` makes what is shown of a text.
export function withChips(instruction, show) {
  return instruction
    .split(MACRO)
    .flatMap((text, index) => [
      ...(index ? [el("span", { class: "task-chip" }, "the task")] : []),
      ...(text ? [show(text)] : []),
    ])
}

// Shows an instruction with chips, and only if it has changed, so that a selection stays.
export function setWithChips(element, instruction, show) {
  if (element.told === instruction) return
  element.told = instruction
  element.replaceChildren(...withChips(instruction, show))
}
