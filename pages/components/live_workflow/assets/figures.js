// What a step or a plan took, in rows of [name, value]: cost, tokens, prices, time and speed.

import {
  basis,
  count,
  parametersOf,
  pathKey,
  perMillion,
  roundName,
  seconds,
  shortHash,
  tokens,
  usd,
} from "./format.js"
import { priceOf } from "./model.js"

// Returns the rows about tokens. Parts that nobody has told are left out; ``output`` stands for the count of a call
// that is on.
function tokenRows(usage, output) {
  const mark = usage.estimated ? " (estimated)" : ""
  const parts = (...told) => told.flatMap(([number, words]) => (number ? [`${tokens(number)} ${words}`] : []))
  const read = parts(
    [usage.cached_input_tokens, "from the cache"],
    [usage.cache_write_tokens, "into the cache"],
    [usage.orchestration_input_tokens, "for its server’s own workflow"],
    [usage.orchestration_cached_input_tokens, "for that from the cache"],
  )
  const written = parts(
    [usage.reasoning_tokens, "of reasoning"],
    [usage.orchestration_output_tokens, "for its server’s own workflow"],
  )
  const row = (whole, told) => (told.length ? `${whole}, of these ${told.join(", ")}` : whole)
  return [
    ["Input", row(`${tokens(usage.input_tokens)}${mark}`, read)],
    ["Output", row(output ?? `${tokens(usage.output_tokens)}${mark}`, written)],
  ]
}

const costRow = (spent, open, ...more) => [
  "Cost",
  [usd(open ? null : spent.cost_usd, spent.known_usd), ...more, basis(spent)].filter(Boolean).join(" · "),
]

// Returns the tokens a second of a step's last call, once its first token had come; 0: nobody can tell.
export function speed(step, model) {
  const ms = model.stepMs(step)
  if (ms === null) return 0
  const before = step.attempts.reduce((sum, { usage }) => sum + (usage?.output_tokens ?? 0), 0)
  const turns = (step.turns ?? []).reduce((sum, { usage }) => sum + usage.output_tokens, 0)
  const written = model.stepTokens(step) - turns - (step.status === "running" ? 0 : before)
  if (step.first_token_ms === null || step.first_token_ms === undefined)
    return ms > 500 && !step.attempts.length ? Math.round((written / ms) * 1000) : 0
  const streaming = ms - step.first_token_ms
  return streaming > 300 ? Math.round((written / streaming) * 1000) : 0
}

export function stepRows(model, step) {
  if (step.given) return [["Cost", "nothing: a person gave this output, and no model was asked"]]
  const inner = model.rounds.has(pathKey(step.path))
  const spent = inner ? model.spentOn(step) : step
  const worker = model.worker(step.agent)
  // A step without a worker is the Conductor's. The workers of its round have prices of their own.
  const by = worker ?? model.run?.conductor
  const price = by ? priceOf(by) : null
  const whose = worker || !by ? "" : "the Conductor’s: "
  const open = ["running", "cancelled"].includes(step.status) && step.started_ms !== null && worker && !price
  const rate = speed(step, model)
  const calls = step.attempts.filter((attempt) => !attempt.loading).length
  const rows = [
    costRow(spent, open, step.simulated ? "simulated" : "", inner ? `with ${roundName(step.path)}` : ""),
    ...tokenRows(spent.usage, step.status === "running" ? `${tokens(model.stepTokens(step))} so far` : null),
    ["Price", `${whose}${perMillion(price)}`],
    ["Started", step.started_ms === null ? "not yet" : `${seconds(step.started_ms)} into the run`],
    ["First token", seconds(step.first_token_ms)],
    ["Duration", seconds(model.stepMs(step))],
    ["Speed", rate && !inner && !step.reused_from ? `${count(rate)} tokens/s` : "–"],
    ["Attempts", step.started_ms === null ? "none" : String(calls + (step.attempts.at(-1)?.then === "kept" ? 0 : 1))],
    ["Finish reason", step.finish_reason ?? "–"],
    ["Model", step.model ?? (by ? `${whose}${by.model}` : "–")],
    ...(step.weights ? [["Size", parametersOf(step.weights.parameters)]] : []),
    ...(step.weights?.sha256 ? [["Its file", `SHA-256 ${shortHash(step.weights.sha256)}`]] : []),
  ]
  return step.reused_from ? [["Reused", "nothing was paid in this run; figures are from where it ran"], ...rows] : rows
}

// A server may pass over what it is asked for, and does not tell.
const decoding = ({ constrained, kind }) =>
  constrained ? (kind === "remote" ? "its server is asked to hold the plan to a form" : "grammar-constrained") : "free"

// Returns the tokens a second with which the Conductor wrote its plan, once its first token had come.
function paceOfPlan(round) {
  const ms = (round?.duration_ms ?? 0) - (round?.first_token_ms ?? 0)
  const alone = round?.first_token_ms && !round.rejected.length && !round.retries?.length
  return alone && ms > 300 ? `${count((1000 * round.usage.output_tokens) / ms)} tokens/s` : "–"
}

const NO_USAGE = { input_tokens: 0, output_tokens: 0, estimated: false }

export function planRows(model, round) {
  const conductor = model.run?.conductor
  const price = conductor ? priceOf(conductor) : null
  const begun = ["planning", "unfinished"].includes(round?.status)
  const open = begun && (model.ended ? round.raw : round.messages.length) && !price
  const own = conductor?.prompt_sha256 ? `of its own, ${shortHash(conductor.prompt_sha256)}` : "the program’s"
  return [
    round ? costRow(round, open) : ["Cost", "–"],
    ["Price", conductor ? perMillion(price) : "–"],
    ["Model", conductor?.model ?? "–"],
    ["Runs on", conductor ? [conductor.kind, conductor.device, conductor.dtype].filter(Boolean).join(" · ") : "–"],
    ["Prompt", conductor ? own : "–"],
    ["Decoding", conductor ? decoding(conductor) : "–"],
    ...tokenRows(round?.usage ?? NO_USAGE),
    ["First token", seconds(round?.first_token_ms)],
    ["Duration", seconds(round?.duration_ms)],
    ["Speed", paceOfPlan(round)],
  ]
}
