// Says how the calls of a step or a plan went: how one, or its answer, departed from what was asked for, and failures.

import { seconds } from "./format.js"
import { count } from "./format.js"

const DEPARTED = {
  left_out: ({ what }) => ["muted", `the server refuses ${what}, so it was asked without`],
  renamed: ({ what, text }) => [
    "muted",
    `the server wants ${what} to be called ${text}, and it was sent under that name`,
  ],
  system_in_user: () => ["muted", "the server's model takes no system message: its text began the user's message"],
  turn_token: ({ what, text }) => [
    "warn",
    `the answer was cut at the template token ${what}${text.trim() ? `; ${count(text.length)} characters after it are in the record` : ""}. Check the chat template and the stop tokens of its server`,
  ],
  lone_close: ({ what }) => [
    "muted",
    `${what} ended reasoning that began in the prompt: what came before it is reasoning`,
  ],
  unknown_field: ({ what }) => [
    "muted",
    `the server sent a field that is not known here, ${what}; it is in the record`,
  ],
}

// Mirrors Departure.in_words. `visible` makes a text inert.
export function departureLines({ departures = [] }, visible) {
  return departures.map((departure) => {
    const [kind, text] = DEPARTED[departure.kind]({
      what: visible(departure.what),
      text: departure.kind === "renamed" ? visible(departure.text) : departure.text,
    })
    return { kind, text: `↳ ${text}` }
  })
}

// Says of each failed call that another followed what was wrong. An attempt at a plan may take several calls.
export function retryLines({ retries = [] }, visible) {
  const calls = new Map()
  return retries.map(({ loading, error, attempt, wait_ms: wait }) => {
    if (loading) return `◷ the server is loading its model and is asked again until it answers: ${visible(error)}`
    calls.set(attempt, (calls.get(attempt) ?? 0) + 1)
    const of = attempt > 1 ? ` of attempt ${attempt}` : ""
    return `↻ call ${calls.get(attempt)}${of} failed: ${visible(error)}; asked again after ${seconds(wait)}`
  })
}
