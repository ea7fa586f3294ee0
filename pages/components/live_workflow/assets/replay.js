// Plays a finished run again: the messages of its live view, folded by the same model and drawn by the same parts, on a
// clock of the page. It changes nothing and sends nothing; leaving it shows the finished run as before.

import { el, setText } from "./dom.js"
import { plural, seconds } from "./format.js"
import { Player } from "./player.js"
import { LONGEST_PAUSE_MS, Recording, clockText, readMoment, writeMoment } from "./recording.js"
import { fetchRecording } from "./socket.js"

const SPEEDS = [1, 2, 5, 10, 20]
const WRITE_AFTER_MS = 250
const FIELDS = /^(INPUT|TEXTAREA|SELECT)$/
const PRESSED = /^(BUTTON|A|SUMMARY)$/

export class Replay {
  // `record`: brings a run's recording by its id. `place`: reads and writes the moment in the page's address.
  constructor(view, { record = fetchRecording, place = address } = {}) {
    this.view = view
    this.record = record
    this.place = place
    this.player = null // while a replay is open
    this.speed = 1
    this.opener = el(
      "button",
      {
        type: "button",
        class: "replay-open",
        title: "Play this run again as it happened",
        onclick: () => this.enter(),
      },
      "▶ Replay",
    )
    this.play = el("button", { type: "button", class: "play", onclick: () => this.toggle() })
    this.slider = el("input", {
      type: "range",
      class: "moment",
      min: "0",
      step: "1",
      "aria-label": "Moment of the run",
    })
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)))
    this.clock = el("span", { class: "number replay-clock" })
    this.rate = el(
      "select",
      { class: "speed", "aria-label": "Speed", title: "Speed" },
      SPEEDS.map((speed) => el("option", { value: String(speed) }, `${speed} ×`)),
    )
    this.rate.addEventListener("change", () => {
      this.speed = Number(this.rate.value)
      if (this.player) this.player.speed = this.speed
    })
    this.cut = el("span", { class: "muted small replay-cut" })
    const leave = el(
      "button",
      {
        type: "button",
        class: "leave",
        "aria-label": "Leave the replay",
        title: "Show the finished run again (Esc)",
        onclick: () => this.leave(),
      },
      "✕",
    )
    this.element = el(
      "div",
      { class: "replay", role: "group", "aria-label": "Replay", hidden: true },
      el(
        "span",
        { class: "pill replayed", title: "This run is over. It is played again as it was recorded." },
        "Replay",
      ),
      this.cut,
      this.play,
      this.slider,
      this.clock,
      this.rate,
      leave,
    )
    this.keys = (event) => this.key(event)
    this.forget()
  }

  get active() {
    return this.player !== null
  }

  get playing() {
    return this.player !== null && this.player.playing
  }

  destroy() {
    this.player?.stop()
    this.player = null
    clearTimeout(this.writing)
    document.removeEventListener("keydown", this.keys)
  }

  // Another run is shown.
  forget() {
    this.destroy()
    this.loading = false
    this.linked = false
    this.recording = null
    this.view.root?.removeAttribute("data-replay")
    if (this.view.graph) this.view.graph.held = false
  }

  // Whether the run that the page shows can be played.
  get offered() {
    const { model, root } = this.view
    return model.ended && !model.stopped && !model.replayed && !root.hasAttribute("data-editing")
  }

  // Goes to the moment that the address names, once, when the run is there.
  begin() {
    if (this.linked || !this.view.live.ended) return
    this.linked = true
    const text = this.place.read(this.view.runId)
    const at = readMoment(text)
    if (at !== null) this.enter(at)
    else if (text !== null) this.place.write(null) // it names no moment
  }

  // Begins to play, or stands at `at` milliseconds.
  async enter(at = null) {
    if (!this.offered || this.loading) return
    const { runId } = this.view
    this.loading = true
    this.show()
    try {
      this.recording ??= new Recording(await this.record(runId))
    } catch (error) {
      if (runId === this.view.runId) this.view.unknown = `This run cannot be played: ${error.message}`
    }
    if (runId !== this.view.runId) return
    this.loading = false
    if (this.recording === null || !this.offered) return this.view.queue()
    this.open(at)
  }

  open(at) {
    const { view, recording } = this
    this.before = { selected: view.selected, following: view.following }
    this.player = new Player(recording, { onMove: (touched) => this.moved(touched), onEnd: () => this.pause() })
    this.player.speed = this.speed
    this.player.timeline = view.live.timeline
    this.slider.max = String(Math.ceil(recording.lengthMs))
    setText(this.cut, recording.cuts ? `pauses cut to ${LONGEST_PAUSE_MS / 1000} s` : "")
    const longer = plural(recording.cuts, "wait or pause was", "waits and pauses were")
    this.cut.title = `${longer} longer: ${seconds(recording.cutMs)} of the run are left out`
    view.graph.held = true
    this.player.go(at ?? 0)
    view.showModel(this.player.model)
    document.addEventListener("keydown", this.keys)
    if (at === null) this.start()
    // The controls are shown with the next frame.
    requestAnimationFrame(() => requestAnimationFrame(() => this.active && this.play.focus({ preventScroll: true })))
  }

  leave() {
    if (!this.active) return
    const { view, before } = this
    this.destroy()
    this.place.write(null)
    view.showModel(view.live)
    view.graph.held = false
    Object.assign(view, before)
    view.render()
    this.opener.focus({ preventScroll: true })
  }

  toggle() {
    if (this.playing) return this.pause()
    if (this.player.ended) this.player.go(0)
    this.start()
  }

  start() {
    this.place.write(null)
    this.player.start()
    this.view.queue()
  }

  pause() {
    this.player.stop()
    this.write()
    this.view.queue()
  }

  // Stands at a moment. A slider that is drawn along comes here many times a second; a frame draws the last one.
  seek(ms) {
    this.player.stop()
    this.player.go(ms)
    this.write()
    this.view.queue()
  }

  // A browser allows a page only so many changes of its address.
  write() {
    clearTimeout(this.writing)
    this.writing = setTimeout(() => this.active && this.place.write(writeMoment(this.player.position)), WRITE_AFTER_MS)
  }

  moved(touched) {
    const { view, player } = this
    this.showMoment()
    if (view.model !== player.model) return
    if (view.selected !== null && !player.model.step(view.selected)) view.following = true
    view.took(touched)
  }

  // Shows what changes with the state of the replay.
  show() {
    this.opener.hidden = !this.offered && !this.loading
    this.opener.disabled = this.loading
    setText(this.opener, this.loading ? "Loading…" : "▶ Replay")
    this.element.hidden = !this.active
    setText(this.play, this.playing ? "❚❚" : "▶")
    const does = this.playing ? "Pause" : "Play"
    if (this.play.title === `${does} (Space)`) return
    this.play.title = `${does} (Space)`
    this.play.setAttribute("aria-label", does)
  }

  showMoment() {
    const { lengthMs, position, runMs } = this.player
    const said = `${clockText(position)} / ${clockText(lengthMs)}`
    setText(this.clock, said)
    this.slider.value = String(position)
    this.slider.style.setProperty("--done", lengthMs ? position / lengthMs : 1)
    this.slider.setAttribute("aria-valuetext", said)
    this.view.timeline.mark(runMs)
  }

  // Space plays and pauses, arrows go to the next change, Escape leaves; a button or a field keeps its own keys.
  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return
    const at = event.composedPath()[0]
    const own = at === this.slider
    if (!own && (at.isContentEditable || FIELDS.test(at.tagName ?? ""))) return
    if (event.key === "Escape") this.leave()
    else if (event.key === " ") {
      if (PRESSED.test(at.tagName ?? "")) return
      this.toggle()
    } else {
      const to = {
        ArrowRight: () => this.recording.stopFrom(this.player.position, 1),
        ArrowLeft: () => this.recording.stopFrom(this.player.position, -1),
        Home: () => 0,
        End: () => this.recording.lengthMs,
      }[event.key]
      if (!to) return
      this.seek(to())
    }
    event.preventDefault()
  }
}

// The moment in the address of the page: ?run=ID&at=12.5, in seconds of the replay.
const address = {
  read(runId) {
    const parameters = new URLSearchParams(location.search)
    return parameters.get("run") === runId ? parameters.get("at") : null
  },
  write(at) {
    const url = new URL(location.href)
    if (at === url.searchParams.get("at")) return
    if (at === null) url.searchParams.delete("at")
    else url.searchParams.set("at", at)
    history.replaceState(history.state, "", url)
  },
}
