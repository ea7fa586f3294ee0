// What the page says about a run: its answer, or why there is none and what to do.

import { caller, pathKey, seconds } from "./format.js"
import { NOT_WHOLE } from "./panes.js"
import { STEP_STATUS, advice, isReal, notWhole } from "./status.js"
import { isolated, visible } from "./text.js"

// Ids of runs that were cancelled on this page since it was loaded.
export const cancelledHere = new Set()

// Returns {title, kind, conclusion, hint, sourced, workers, code, formula, sentence, text}. `sentence` is the line of the
// answer that the bar shows beside its value; `text` is all of the answer, and `whole` says that it is to be read whole.
export function outcomeOf(model, run, last) {
  if (["damaged", "too_new", "key_away"].includes(run.status)) {
    const kind = run.status === "damaged" ? "failed" : "cancelled"
    const hint = run.status === "key_away" ? undefined : READ
    return { title: "Not all of this run can be read", kind, conclusion: run.error, hint }
  }
  if (run.answer !== null) return answered(model, run, last)
  const none = { title: "No answer", kind: "cancelled", hint: model.steps.size ? KEPT : NO_PLAN }
  switch (run.status) {
    case "denied":
      return { ...none, kind: "failed", conclusion: run.error }
    case "failed":
      return {
        ...none,
        kind: "failed",
        conclusion: sentence(run.error ?? ""),
        hint: model.stopped ? STOPPED : advice(run.error_code),
      }
    case "cancelled":
      return { ...none, conclusion: cancelled(run) }
    case "interrupted":
      return { ...none, conclusion: "The program ended during this run." }
    case "planned":
      return {
        title: "Plan only",
        kind: "planned",
        conclusion: "The plan is written and nothing has run.",
        hint: "Edit it, or run it as it is.",
      }
  }
  return { kind: "quiet" }
}

function answered(model, run, last) {
  const { kind, text, formula } = model.conclusion
  if (notWhole(run.status)) return endedShort(model, run, last)
  const answer = {
    title: "Answer",
    kind: "answered",
    sourced: true,
    conclusion: text,
    text: run.answer,
    formula,
    code: kind === "code",
    whole: kind !== "value" && run.answer.length > ONE_LINE,
  }
  const amber = { ...answer, title: "No answer", kind: "declined" }
  if (kind === "empty") return { ...amber, conclusion: "The last step wrote nothing.", hint: EMPTY }
  if (kind === "declined" && last?.simulated) {
    return {
      ...amber,
      conclusion: "Simulated workers know the example tasks only.",
      hint: SIMULATED,
      workers: true,
    }
  }
  if (kind === "declined") return { ...amber, hint: DECLINED }
  if (last?.incomplete) return { ...answer, title: "Answer, cut off", kind: "declined", hint: CUT }
  // A text that marks no value has no label: its first line says what it is.
  if (kind === "text") return { ...answer, title: "", conclusion: undefined, sentence: firstLine(run.answer) }
  return kind === "code" ? answer : { ...answer, sentence: sentenceWith(text, run.answer) }
}

const CAME =
  "This run came with the program: its engine carried it out, this database did not. Edit it and run it again."
// Returns what of this run the database did not carry out, in a word and in a sentence; empty: nothing.
export function cameFrom({ run, steps, replayed }) {
  if (run?.imported) {
    const real = [...steps.values()].findLast(isReal)
    const what = real ? `Recorded, real: ${visible(real.model).replace(/\.gguf$/, "")}` : "Recorded"
    return run.imported.recorded && !replayed ? [what, CAME] : ["", ""]
  }
  const taken = [...steps.values()].filter(({ reused_from: from }) => from?.imported).map(({ path }) => pathKey(path))
  if (!taken.length) return ["", ""]
  const which = taken.length > 1 ? `Steps ${taken.join(", ")} are` : `Step ${taken[0]} is`
  return ["Imported answers", `${which} reused from an imported run, which this database did not carry out.`]
}

const APIS = { chat: "Chat Completions", responses: "Responses", messages: "Messages" }

// Who asked through the endpoint for what, in few words.
export const askedBy = ({ client, actor, door }) =>
  `${isolated(actor?.name ?? "somebody")}, ${door} → ${isolated(client.model)}`

// The same in all words.
export const clientWords = (run) =>
  `${APIS[run.client.api]}, model ${isolated(run.client.model)}, by ${visible(caller(run))}`

const ONE_LINE = 100
const LEAST_WORDS = 4
const LOOKED_AT = 20_000

const firstLine = (answer) =>
  answer
    .slice(0, LOOKED_AT)
    .split("\n")
    .find((line) => /[\p{L}\p{N}]/u.test(line)) ?? answer

// Returns the last line of the answer that says more than `value`; none where every line has the value alone.
function sentenceWith(value, answer) {
  const words = (line) => line.replace(value, "").split(/\s+/).length
  const lines = answer.slice(-LOOKED_AT).split("\n")
  return lines.findLast((line) => line.includes(value) && words(line) >= LEAST_WORDS) ?? ""
}

// Describes a run whose last step has an incomplete answer: how it ended, who said so, and what there is of it.
function endedShort(model, run, last) {
  const written = run.answer.trim() !== ""
  const [tool] = last?.tool_calls ?? []
  const called = tool ? `It called the tool ${visible(tool.name)} instead of answering.` : ""
  const said = visible(last?.refusal ?? "") || called
  const whole = `${NOT_WHOLE[run.status]}.`
  const what = advice(`Answer${run.status[0].toUpperCase()}${run.status.slice(1)}`)
  return {
    title: written && run.status === "cut" ? "Answer, cut off" : `No answer: ${STEP_STATUS[run.status].word}`,
    kind: "declined",
    sourced: true,
    conclusion: said || (written ? model.conclusion.text : whole),
    hint: !said && written ? `${whole} ${what}` : what,
    text: written ? run.answer : undefined,
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1)

function cancelled(run) {
  // The record does not say on which page it was cancelled; only that page knows.
  const page = cancelledHere.has(run.run_id) ? "from this page" : "from a page of the inspector"
  const { actor, door } = run.ended_by ?? {}
  const after = `after ${seconds(run.duration_ms)}.`
  if (actor?.kind === "program") return `Cancelled ${after} The program was ended.`
  return `Cancelled ${door === "page" ? page : `by ${actor?.name ?? "someone"}`} ${after}`
}

const STOPPED = "What was written is kept. Fix the storage error, restart the program, then resume the run."
const READ = "Everything up to that place is shown. What happened after it is not known."
const KEPT = "What the steps wrote is kept; a re-run pays only for what is missing."
const NO_PLAN = "No step had begun. Press Run for a new plan."
const SIMULATED = "The plan and what each step saw are real."
const DECLINED =
  "Ask in other words, or give the step to another worker under Change a step: finished steps are reused."
const EMPTY = "Give the step to another worker under Change a step, or ask in other words: finished steps are reused."
const CUT = "The provider stopped before the end. Raise max_tokens of this worker, or ask for a shorter answer."
