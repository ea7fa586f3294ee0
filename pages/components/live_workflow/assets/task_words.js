// Instructions name the task by a macro. What people read never shows it: it is left out where room is dear, and a chip
// elsewhere.

import { el } from "./dom.js"

export const MACRO = "{question}"
const AT_END =
  /(?:^|[\s:,;–-]+|(?:^|(?<=[.!?:;\n]))\s*(?:the |this )?(?:task|question|problem)\s*[:=]\s*)\{question\}["'”»]?[.\s]*$/i

// Returns an instruction without the macro; in the middle of a sentence the task is named.
export function withoutTask(instruction) {
  const left = instruction.replace(AT_END, "").trimEnd()
  return left.replaceAll(MACRO, "the task").trim() || "the task"
}

// Returns the parts of an instruction, with a chip for each macro. `show` makes what is shown of a text.
export function withChips(instruction, show = (text) => text) {
  return instruction
    .split(MACRO)
    .flatMap((text, index) => [
      ...(index ? [el("span", { class: "task-chip" }, "the task")] : []),
      ...(text ? [show(text)] : []),
    ])
}
