// The page without a run plays a recorded one, quietly: it takes no focus and no keys, announces nothing, and stands still
// once a person types, presses Pause, or has asked the system for less motion. Clicks in it choose steps, as in a run.

import { el, setText } from "./dom.js"
import { Player } from "./player.js"
import { Recording, clockText } from "./recording.js"
import { fetchRecording } from "./socket.js"
import { visible } from "./text.js"

const EVERY_MS = 100
const REST_MS = 8_000 // between two plays, so that the answer can be read
const STOPPED = "recorded-run-stopped" // kept while the browser's tab is open
const LESS_MOTION = "(prefers-reduced-motion: reduce)"

export class Recorded {
  constructor(view, { onOpen }) {
    this.view = view
    this.runId = null
    this.player = null
    this.pill = el("span", { class: "pill replayed" }, "Recorded run, simulated")
    this.clock = el("span", { class: "number recorded-clock", "aria-hidden": "true" })
    this.bar = el("span", { class: "recorded-bar", "aria-hidden": "true" }, el("i"))
    this.play = el("button", { type: "button", class: "recorded-play", onclick: () => this.toggle() })
    const open = el(
      "button",
      { type: "button", title: "Open this run: replay, edit, run again", onclick: () => onOpen(this.runId) },
      "Open this run",
    )
    this.controls = el("span", { class: "recorded-controls", hidden: true }, this.clock, this.bar, this.play, open)
    this.element = el(
      "div",
      { class: "recorded", role: "group", "aria-label": "Recorded run", hidden: true },
      this.pill,
      this.controls,
    )
  }

  get playing() {
    return this.player !== null && this.player.playing
  }

  // Whether the page shows a recorded run or is about to.
  get active() {
    return this.runId !== null && !this.failed
  }

  // Whether its parts are hidden: until it is there, and while its end is drawn to measure it.
  get loading() {
    return this.active && !this.ready
  }

  // `shown`: {run_id, plays} of the run to show. `plays` is false while the task box has a text.
  update(shown) {
    this.plays = shown.plays
    if (shown.run_id !== this.runId) {
      this.leave()
      this.load(shown.run_id)
    } else if (!shown.plays) this.pause()
  }

  async load(runId) {
    this.runId = runId
    this.failed = this.ready = false
    let recording = null
    try {
      recording = new Recording(await fetchRecording(runId))
    } catch {
      // Without it the page explains itself in words, and nobody has asked for this run.
      this.failed = true
    }
    if (runId !== this.runId) return
    if (recording === null) this.view.queue()
    else this.show(recording)
  }

  // Draws the whole run first, so that the graph has the room that it will need, and then goes to its beginning.
  show(recording) {
    const { view } = this
    this.player = new Player(recording, {
      onMove: (touched) => this.moved(touched),
      onEnd: () => this.rest(),
      everyMs: EVERY_MS,
    })
    this.player.go(recording.lengthMs)
    const { run, timeline } = this.player.model
    this.player.timeline = timeline
    this.pill.title = visible(run.task)
    this.controls.hidden = false
    view.bar.announce(false)
    view.showModel(this.player.model)
    view.render()
    view.graph.held = true
    if (this.plays && !stopped() && !matchMedia(LESS_MOTION).matches) this.start()
    this.showState()
    requestAnimationFrame(() => {
      this.ready = true
      view.queue()
    })
    document.addEventListener("input", (this.typed = ({ target }) => target.matches?.("textarea") && this.pause()))
  }

  destroy() {
    clearTimeout(this.resting)
    document.removeEventListener("input", this.typed)
    this.player?.stop()
  }

  // Leaves the view to the run that comes, or to none.
  leave() {
    this.destroy()
    this.runId = null
    if (this.player === null) return
    this.player = null
    const { view } = this
    view.graph.held = false
    view.root.removeAttribute("data-replay")
    view.bar.announce(true)
    view.reset()
    view.queue()
  }

  start() {
    clearTimeout(this.resting)
    if (this.player.ended) this.player.go(0)
    this.player.start()
    this.showState()
  }

  pause() {
    clearTimeout(this.resting)
    this.resting = null
    if (this.player === null) return
    this.player.stop()
    this.showState()
  }

  // A person who has chosen a step reads it: it does not go away.
  rest() {
    this.resting = setTimeout(() => (this.view.following ? this.start() : this.pause()), REST_MS)
    this.view.queue()
  }

  toggle() {
    const stops = this.playing || this.resting
    keepStopped(stops)
    if (stops) this.pause()
    else this.start()
  }

  moved(touched) {
    const { view, player } = this
    this.showMoment()
    if (view.model !== player.model) return
    if (view.selected !== null && !player.model.step(view.selected)) view.following = true
    view.took(touched)
  }

  showMoment() {
    const { position, lengthMs, runMs } = this.player
    setText(this.clock, `${clockText(position)} / ${clockText(lengthMs)}`)
    this.bar.style.setProperty("--done", lengthMs ? position / lengthMs : 1)
    this.view.timeline.mark(runMs)
  }

  showState() {
    const goesOn = this.playing || Boolean(this.resting)
    setText(this.pill, goesOn ? "Recorded run, simulated, replaying" : "Recorded run, simulated, stopped")
    setText(this.play, goesOn ? "Pause" : "Play")
    this.view.queue()
  }
}

function stopped() {
  return sessionStorage.getItem(STOPPED) !== null
}

function keepStopped(stops) {
  if (stops) sessionStorage.setItem(STOPPED, "yes")
  else sessionStorage.removeItem(STOPPED)
}
