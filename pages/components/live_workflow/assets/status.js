// What a status is called, its glyph, and what a person can do about a failure.

export const STEP_STATUS = {
  draft: { glyph: "…", word: "being written" },
  waiting: { glyph: "○", word: "waiting" },
  running: { glyph: "◔", word: "running" },
  retrying: { glyph: "↻", word: "retrying" },
  completed: { glyph: "✓", word: "done" },
  incomplete: { glyph: "◐", word: "cut off" },
  refused: { glyph: "⊗", word: "refused" },
  filtered: { glyph: "▽", word: "filtered" },
  cut: { glyph: "◐", word: "cut off" },
  empty: { glyph: "∅", word: "empty" },
  reused: { glyph: "↺", word: "reused" },
  failed: { glyph: "✕", word: "failed" },
  skipped: { glyph: "⊘", word: "skipped" },
  cancelled: { glyph: "■", word: "cancelled" },
  unread: { glyph: "⚠", word: "record ends here" },
}

// Answers that are no whole ones; each word is the status of a step, and of a run whose answer ended so.
const NOT_WHOLE = new Set(["refused", "filtered", "cut", "empty"])
export const notWhole = (status) => NOT_WHOLE.has(status)

// Whether a step has ended with something that other steps may read.
export const ended = (status) => status === "completed" || status === "reused" || notWhole(status)

// A step's status as shown: retries are told apart, and cut answers in records that have no word of their own for them.
export function shownStatus(step) {
  if (step.status === "running" && step.attempts.length && !step.output && !step.reasoning) return "retrying"
  if (step.status === "completed" && step.incomplete) return "incomplete"
  return step.status
}

export const RUN_STATUS = {
  running: { glyph: "●", word: "Running" },
  planned: { glyph: "✓", word: "Planned" },
  completed: { glyph: "✓", word: "Completed" },
  refused: { glyph: "⊗", word: "Refused" },
  filtered: { glyph: "▽", word: "Filtered" },
  cut: { glyph: "◐", word: "Cut off" },
  empty: { glyph: "∅", word: "Empty" },
  failed: { glyph: "✕", word: "Failed" },
  cancelled: { glyph: "■", word: "Cancelled" },
  interrupted: { glyph: "⚡", word: "Interrupted" },
  damaged: { glyph: "⚠", word: "Damaged" },
  too_new: { glyph: "⇡", word: "Too new" },
}

const ADVICE = {
  WorkerUnreachable: "Check that the server runs and its address in the pool file, then re-run: finished steps are reused.",
  WorkerTimedOut: "Raise timeout_s of this worker in the pool file, or give the step to a faster one.",
  WorkerRateLimited: "Wait a moment and re-run, or lower max_concurrency of this worker: finished steps are reused.",
  WorkerFailed: "The provider reported a fault of its own. Re-run later, or edit the step to use another worker.",
  WorkerStreamCut: "The answer broke off; what arrived is kept above. Re-run: finished steps are reused.",
  WorkerRefused: "Check the key's environment variable and the model's name on the Workers page.",
  WorkerOutputTooLarge: "Ask for a shorter answer in the instruction, or raise max_output_bytes of this worker.",
  AnswerRefused: "Ask in other words, or give the step to another worker under Edit plan: finished steps are reused.",
  AnswerFiltered: "Ask in other words, or give the step to another worker under Edit plan: finished steps are reused.",
  AnswerCut: "Raise max_tokens of this worker in the pool file, or ask for a shorter answer.",
  AnswerEmpty: "Ask again, or give the step to another worker under Edit plan. A model that thinks may need more max_tokens.",
  ConductorUnavailable: "Choose another Conductor, or check that its files or its server are there.",
  PlanRejected: "Run again, choose another Conductor, or write the plan yourself under Edit plan.",
  LimitReached: "Raise the limit under Limits and re-run: finished steps are reused.",
  StoreFull: "Free some space on the disk that holds the database, then re-run.",
}

export const advice = (code) => ADVICE[code] ?? "Edit the plan or re-run: finished steps are reused."
