// Formats numbers and names for the page.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 })

export const pathKey = (path) => path.join(".")

// Returns an agent's colour by its place in the pool; null: it is not in the pool.
export const agentColour = (index) => `var(--agent-${index === null ? "none" : index % 8})`

export function seconds(ms) {
  if (ms === null || ms === undefined) return "–"
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`
  const total = Math.round(ms / 1000)
  if (total < 3600) return `${Math.floor(total / 60)} min ${String(total % 60).padStart(2, "0")} s`
  return `${Math.floor(total / 3600)} h ${String(Math.floor((total % 3600) / 60)).padStart(2, "0")} min`
}

export const count = (value) => whole.format(value)

// As `formats.size_in_bytes`.
export function sizeInBytes(size) {
  if (size < 1_000) return plural(size, "byte")
  return size < 999_950 ? `${(size / 1_000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`
}

// Says how large a model is, in few letters: 135M, 7.6B.
export const sized = (parameters) =>
  parameters >= 1e9 ? `${(parameters / 1e9).toFixed(1)}B` : `${whole.format(parameters / 1e6)}M`

// The same in words.
export const parametersOf = (parameters) =>
  parameters >= 1e9
    ? `${(parameters / 1e9).toFixed(1)} billion parameters`
    : `${whole.format(parameters / 1e6)} million parameters`

export const tokens = (value) => `${whole.format(value)} tok`

const cents = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })

// Formats USD as ``costs.Cost`` does. ``known``: USD of the parts with a known price, if the whole has none.
export function usd(value, known = 0) {
  if (value === null || value === undefined) return known > 0 ? `at least ${usd(known)}` : "unknown"
  if (value === 0) return "$0"
  if (value < 0.000001) return "<$0.000001"
  return value < 0.01 ? `$${value.toFixed(6)}` : value < 1 ? `$${value.toFixed(4)}` : `$${cents.format(value)}`
}

// Formats USD for places where no other word says that it is a cost, as ``Cost.in_line`` does.
export function usdInLine(value, known = 0) {
  const said = usd(value, known)
  return said === "unknown" ? "cost unknown" : said
}

// Returns the basis of a cost, shown after it: the provider's figure, exact tokens at list
// price, at most that, or estimated tokens.
export function basis({ cost_usd, at_list_price, cost_at_most, usage }) {
  if (!cost_usd) return ""
  if (!at_list_price) return "as the provider says"
  if (usage.estimated) return "estimated"
  return cost_at_most ? "at most; what the provider's cache saved is not known" : "at list price"
}

// Says a price in USD. Mirrors ``Price.in_words``.
export function perMillion(price) {
  if (!price) return "none given"
  const { long } = price
  const more = long ? `; for prompts of more than ${tokens(long.above)}: ${ofTokens(long)}` : ""
  return `${ofTokens(price)} per million${more}`
}

const ofTokens = ({ input, output, cached_input: cached, cache_write: write }) =>
  [
    `$${input} in`,
    (cached ?? null) !== null && `$${cached} in from the cache`,
    (write ?? null) !== null && `$${write} into the cache`,
    `$${output} out`,
  ]
    .filter(Boolean)
    .join(", ")

// Says what a model in the inspector's own process is doing, from a Progress of conductor_core.
export function doing({ phase, done, total, per_s: rate, left_s: left }) {
  const pace = rate ? ` · ${rate.toFixed(rate < 10 ? 1 : 0)}/s` : ""
  const still = timeLeft(left)
  if (phase === "loading" || phase === "converting")
    return `${BYTES_OF[phase]}, ${total ? Math.floor((100 * done) / total) : 0} % of ${gigabytes(total)}${still}`
  if (phase === "reading") return `Reading the prompt, ${whole.format(done)} of ${tokens(total)}${pace}${still}`
  return `${phase === "thinking" ? "Thinking" : "Writing"}, ${tokens(done)}${pace}${still}`
}

const BYTES_OF = { loading: "Loading the model", converting: "Converting the model" }

// Says an estimate as roughly as it is known. Mirrors time_left of conductor_core.chat.progress.
function timeLeft(left) {
  if (left === null || left === undefined) return ""
  if (left < 7.5) return " · a few seconds left"
  if (left < 90) return ` · about ${5 * Math.round(left / 5)} s left`
  return ` · about ${Math.round(left / 60)} min left`
}

// Returns how much of what it does is done, from 0 to 1; null for a text, whose length nobody knows.
export function shareDone({ phase, done, total }) {
  return phase === "thinking" || phase === "writing" || !total ? null : done / total
}

const gigabytes = (bytes) =>
  bytes < 1e9 ? `${whole.format(Math.max(1, bytes / 1e6))} MB` : `${(bytes / 1e9).toFixed(1)} GB`

export const shortHash = (hash) => (hash ? `${hash.slice(0, 4)}…${hash.slice(-4)}` : "–")

export function accessList(list) {
  if (list === null || list === undefined) return "…"
  return list === "all" ? '"all"' : `[${list.join(", ")}]`
}

export const plural = (number, one, many = `${one}s`) => `${whole.format(number)} ${number === 1 ? one : many}`

// Estimates tokens while nothing better is known: English text has about four characters per token.
export const estimateTokens = (text) => Math.ceil(text.length / 4)

/** Who did something, and through which door. Mirrors Caller.in_words. */
export function caller({ actor, door }) {
  return [actor && actorName(actor), door].filter(Boolean).join(", ") || "somebody"
}

function actorName({ kind, name, uid, claims = [] }) {
  if (kind !== "local") return name
  if (uid === undefined || uid === null) return `${name} (claimed, not verified)`
  const claimed = claims.map(({ source, says }) => `; claimed: ${source}=${says}`).join("")
  return `${name} (uid ${uid}, not signed in${claimed})`
}

// Names the round that the step at `path` opened, as the command line does: "round 2" for one of the first plan.
export const roundName = (path) => `round ${path.length + 1}`

// Says how the round went that a step opened. Only a round that came to an end has answered.
export function roundLine({ path, status }) {
  const [round, opened] = [roundName(path), `opened by step ${pathKey(path)}`]
  const otherwise = { failed: "failed", cancelled: "was cut off", running: "goes on" }[status]
  return otherwise ? `${round}, ${opened}, ${otherwise}` : `answered by ${round}, ${opened}`
}

export const FROM_THE_RIGHT =
  /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u

// Isolates a text that is written from the right: it would turn what stands beside it in a line around.
export const apart = (text) => (FROM_THE_RIGHT.test(text) ? `\u2068${text}\u2069` : text)
