// Folds a recording into a model of its own up to a moment, and moves the moment on while it plays. The view's parts draw
// that model.

import { RunModel } from "./model.js"

// A frame that comes later than this does not make the run jump.
const LONGEST_FRAME_MS = 250

export class Player {
  // `onMove` hears what a move changed in the model, `onEnd` that the end was reached by playing.
  constructor(recording, { onMove, onEnd }) {
    this.recording = recording
    this.onMove = onMove
    this.onEnd = onEnd
    this.speed = 1
    this.playing = false
    this.timeline = null // of the whole run, on which the moment is marked
    this.count = 0
    this.position = 0
    this.runMs = 0
    this.model = new RunModel()
    this.model.replayed = true
    this.model.now = () => this.runMs
  }

  get lengthMs() {
    return this.recording.lengthMs
  }

  get ended() {
    return this.position >= this.lengthMs
  }

  // Folds what came until `ms`. An earlier moment is folded from the beginning.
  go(ms) {
    const { recording, model } = this
    const to = recording.within(ms)
    const until = recording.countAt(to)
    if (until < this.count) this.count = 0
    const whole = this.count === 0
    const touched = { structure: whole, run: whole, plan: whole, steps: new Set() }
    for (; this.count < until; this.count += 1) {
      this.runMs = recording.runMs[this.count]
      const each = model.apply(recording.messages[this.count])
      for (const name of ["structure", "run", "plan"]) touched[name] ||= each[name]
      for (const key of each.steps) touched.steps.add(key)
    }
    if (this.timeline !== null) model.timeline = this.timeline
    this.position = to
    this.runMs = recording.clockAt(to)
    this.onMove(touched)
  }

  start() {
    this.stop()
    this.playing = true
    let last = performance.now()
    const move = () => {
      const now = performance.now()
      // A hidden page stands still.
      const passed = document.hidden ? 0 : Math.min(now - last, LONGEST_FRAME_MS)
      last = now
      this.go(this.position + passed * this.speed)
      if (!this.playing) return
      if (!this.ended) return this.nextFrame(move)
      this.stop()
      this.onEnd()
    }
    this.nextFrame(move)
  }

  nextFrame(move) {
    this.frame = requestAnimationFrame(move)
  }

  stop() {
    this.playing = false
    cancelAnimationFrame(this.frame)
  }
}
