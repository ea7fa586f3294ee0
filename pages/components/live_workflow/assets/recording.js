// A run that can be played again: the messages of its live view, on a clock of the page. Pure: no DOM, no time of day.

// A pause in which nothing happened, and a wait for an approval, lasts so long at most.
export const LONGEST_PAUSE_MS = 3_000
// A wall clock that went on by so much more than the run's clock shows that the run waited meanwhile.
const WAITED_MS = 1_000
// Changes so close to each other are one stop for who steps through the run.
const ONE_STOP_MS = 30
const TEXT_ONLY = new Set(["delta", "plan_delta", "progress"])

export class Recording {
  // `messages`: as the live route sends them, a snapshot first. `moments`: for each, [the run's clock, the wall clock].
  constructor({ messages, moments }) {
    this.messages = messages
    this.runMs = []
    this.times = [] // of the replay, for each message
    this.cutMs = 0 // how much of the pauses is left out
    this.cuts = 0
    let [clock, wall] = moments[0]
    let at = 0
    for (const [runMs, wallMs] of moments) {
      const ran = Math.max(0, runMs - clock)
      const passed = Math.max(0, wallMs - wall)
      const pause = passed - ran > WAITED_MS ? passed : ran
      const shown = Math.min(pause, LONGEST_PAUSE_MS)
      if (shown < pause) this.cuts += 1
      this.cutMs += pause - shown
      at += shown
      clock = Math.max(clock, runMs)
      wall = wallMs
      this.times.push(at)
      this.runMs.push(clock)
    }
    this.lengthMs = at
    this.stops = stopsOf(messages, this.times)
  }

  // Returns how many messages have come at `ms` of the replay; the first one is always there.
  countAt(ms) {
    let [low, high] = [1, this.times.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.times[middle] <= ms) low = middle + 1
      else high = middle
    }
    return low
  }

  // Returns the run's own clock at `ms` of the replay.
  clockAt(ms) {
    const next = this.countAt(ms)
    const from = this.runMs[next - 1]
    if (next >= this.times.length) return from
    const share = (ms - this.times[next - 1]) / (this.times[next] - this.times[next - 1])
    return from + Math.max(0, Math.min(1, share)) * (this.runMs[next] - from)
  }

  // Returns the nearest stop after `ms` (`direction` 1) or before it (-1), or the end on that side.
  stopFrom(ms, direction) {
    const found =
      direction > 0 ? this.stops.find((stop) => stop > ms + 0.5) : this.stops.findLast((stop) => stop < ms - 0.5)
    return found ?? (direction > 0 ? this.lengthMs : 0)
  }

  within(ms) {
    return Math.max(0, Math.min(this.lengthMs, Number.isFinite(ms) ? ms : 0))
  }
}

// Returns the times at which more changed than a text. Of changes at nearly the same time the last one counts.
function stopsOf(messages, times) {
  const stops = []
  messages.forEach(({ type }, index) => {
    if (TEXT_ONLY.has(type)) return
    if (stops.length > 1 && times[index] - stops.at(-1) < ONE_STOP_MS) stops[stops.length - 1] = times[index]
    else stops.push(times[index])
  })
  return stops
}

// Reads a moment of an address, in seconds, as milliseconds; null: there is none.
export function readMoment(text) {
  const value = text === null || text.trim() === "" ? NaN : Number(text)
  return Number.isFinite(value) ? Math.max(0, value) * 1000 : null
}

export const writeMoment = (ms) => String(Math.ceil(ms) / 1000) // never before what happened at that moment

// Formats a moment of the replay, such as 1:04.2.
export function clockText(ms) {
  const tenths = Math.floor(Math.max(0, ms) / 100)
  const rest = `${String(Math.floor((tenths % 600) / 10)).padStart(2, "0")}.${tenths % 10}`
  return `${Math.floor(tenths / 600)}:${rest}`
}
