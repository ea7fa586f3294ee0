// The clock of the story: two recorded runs one after the other, and between them the change. Pure.

export const SEEN_MS = 4_000 // how long the first answer is shown before the change
export const CHANGE_MS = 4_500 // how long the change is shown before the second run

export class StoryClock {
  // `lengths`: how long the two runs take, in milliseconds.
  constructor([first, second]) {
    this.first = first
    this.changeAt = first + SEEN_MS
    this.secondAt = this.changeAt + CHANGE_MS
    this.lengthMs = this.secondAt + second
    this.starts = [0, this.changeAt, this.secondAt]
  }

  // Returns what is shown at `ms`: the beat (1, 2 or 3), the moment of each run (null: it has not begun), and whether
  // each has ended.
  at(ms) {
    const moment = Math.max(0, Math.min(this.lengthMs, ms))
    const beat = moment < this.changeAt ? 1 : moment < this.secondAt ? 2 : 3
    return {
      beat,
      moments: [Math.min(moment, this.first), beat === 3 ? moment - this.secondAt : null],
      ended: [moment >= this.first, moment >= this.lengthMs],
    }
  }
}

// Formats a moment such as 0:38.
export function minutes(ms) {
  const whole = Math.floor(ms / 1000)
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`
}
