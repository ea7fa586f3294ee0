// The story of the first screen: a wrong answer, one access list changed, the right answer. It takes no focus and no
// keys, announces nothing, and stands still once a person types, presses Pause, or has asked the system for less motion.

import { el, setText } from "./dom.js"
import { accessList } from "./format.js"
import { restyled, takePlace } from "./mounting.js"
import { Player } from "./player.js"
import { Recording } from "./recording.js"
import { StoryClock, minutes } from "./story_clock.js"
import { StoryGraph } from "./story_graph.js"
import { StreamedMarkdown, isolated, visible } from "./text.js"

const EVERY_MS = 100
const LONGEST_STEP_MS = 250
const REST_MS = 8_000 // after a play, so that its end can be read
const STOPPED = "story-stopped" // kept while the browser's tab is open
const LESS_MOTION = "(prefers-reduced-motion: reduce)"

export class StoryView {
  // `told` brings the story; see first_screen.py.
  constructor(parent, { told }) {
    this.clock = el("span", { class: "number muted small", "aria-hidden": "true" })
    this.task = el("span", { class: "story-task muted" })
    this.play = el("button", { type: "button", class: "story-play", onclick: () => this.toggle() }, "Play")
    this.open = el("button", { type: "button", onclick: () => this.setTriggerValue("open", true) }, "Open both runs")
    this.simulated = el("span", { class: "pill simulated", hidden: true }, "Simulated workers")
    const head = el(
      "div",
      { class: "story-head" },
      el("span", { class: "pill plain" }, "Recorded example"),
      this.simulated,
      this.task,
      this.clock,
      this.play,
      this.open,
    )
    this.beats = [1, 2, 3].map((number) => {
      const words = el("span", {})
      const button = el(
        "button",
        { type: "button", onclick: () => this.goTo(number) },
        el("i", { "aria-hidden": "true" }, String(number)),
        words,
      )
      return { button, words, item: el("li", {}, button) }
    })
    this.graph = new StoryGraph()
    this.panes = [pane("first"), pane("second")]
    this.sides = [side("First run"), side("The change"), side("Second run")]
    this.root = el(
      "section",
      { class: "live-workflow card story", "aria-label": "Recorded example" },
      head,
      el("ol", { class: "story-beats" }, ...this.beats.map(({ item }) => item)),
      el(
        "div",
        { class: "story-body" },
        el(
          "div",
          { class: "story-left" },
          this.graph.element,
          el("div", { class: "story-two" }, ...this.panes.map(({ element }) => element)),
        ),
        el("div", { class: "story-side" }, ...this.sides.map(({ element }) => element)),
      ),
    )
    this.watching = takePlace(parent, this.root)
    this.typed = ({ target }) => target.matches?.("textarea") && this.pause()
    document.addEventListener("input", this.typed)
    this.load(told)
  }

  destroy() {
    clearTimeout(this.timer)
    clearTimeout(this.resting)
    document.removeEventListener("input", this.typed)
    this.watching.disconnect()
    this.graph.destroy()
    this.root.remove()
  }

  update({ data, setTriggerValue }) {
    this.setTriggerValue = setTriggerValue
    this.plays = data.plays
    this.open.hidden = !data.opens
    restyled(this.root)
    if (!data.plays) this.pause()
  }

  async load(told) {
    let found = null
    try {
      found = await told()
    } catch {
      this.root.hidden = true // nobody has asked for it
      return
    }
    if (this.root.isConnected) this.begin(found)
  }

  begin(told) {
    this.told = told
    const recordings = told.recordings.map((each) => new Recording(each))
    this.players = recordings.map((each) => new Player(each, { onMove() {}, onEnd() {} }))
    this.time = new StoryClock(recordings.map(({ lengthMs }) => lengthMs))
    this.simulated.hidden = !told.simulated
    setText(this.task, visible(told.task))
    this.task.title = visible(told.task)
    this.graph.take(told)
    const [first, second] = told.answers
    setText(this.beats[0].words, `${first.right ? "Right" : "Wrong"} answer: ${first.text}`)
    setText(this.beats[1].words, "One access list changed")
    setText(this.beats[2].words, `${second.right ? "Right" : "Wrong"} answer: ${second.text}`)
    const colour = `--agent: var(--agent-${told.agents.indexOf(told.steps[told.step].agent) % 8})`
    this.panes.forEach((each, run) => each.take(told, run, colour))
    this.sides[0].take(first.text, told.why, first.right)
    this.sides[1].takeChange(told)
    this.sides[2].take(second.text, told.rerun, second.right)
    const still = !this.plays || sessionStorage.getItem(STOPPED) !== null || matchMedia(LESS_MOTION).matches
    this.go(still ? this.time.lengthMs : 0)
    this.root.toggleAttribute("data-told", true)
    if (still) this.showState()
    else this.start()
  }

  get goesOn() {
    return Boolean(this.playing || this.resting)
  }

  go(ms) {
    this.position = Math.max(0, Math.min(this.time.lengthMs, ms))
    const { beat, moments, ended } = this.time.at(this.position)
    moments.forEach((moment, run) => moment !== null && this.players[run].go(moment))
    const shown = moments[1] === null ? 0 : 1
    const { step, values } = this.told
    const selected = beat > 1 ? step : null
    this.graph.show(this.players[shown].model, { changed: beat > 1, values: values[shown], selected })
    this.panes.forEach((each, run) => each.show(moments[run] === null ? null : this.players[run].model, ended[run]))
    this.root.dataset.beat = String(beat)
    this.beats.forEach(({ item }, index) => {
      item.className = index + 1 < beat ? "past" : index + 1 === beat ? "on" : ""
      if (index + 1 === beat) item.setAttribute("aria-current", "step")
      else item.removeAttribute("aria-current")
    })
    const reached = [ended[0], beat > 1, ended[1]]
    this.sides.forEach(({ element }, index) => element.toggleAttribute("data-reached", reached[index]))
    setText(this.clock, `${minutes(this.position)} / ${minutes(this.time.lengthMs)}`)
  }

  // A beat shows what it is about: an answer, or the change.
  goTo(beat) {
    if (!this.told) return
    this.pause()
    keepStopped(true)
    const { first, changeAt, lengthMs } = this.time
    this.go([first, changeAt, lengthMs][beat - 1])
  }

  start() {
    clearTimeout(this.resting)
    this.resting = null
    if (this.position >= this.time.lengthMs) this.go(0)
    this.playing = true
    let last = performance.now()
    const move = () => {
      const now = performance.now()
      // A hidden page stands still.
      this.go(this.position + (document.hidden ? 0 : Math.min(now - last, LONGEST_STEP_MS)))
      last = now
      if (!this.playing) return
      if (this.position < this.time.lengthMs) this.timer = setTimeout(move, EVERY_MS)
      else this.rest()
    }
    this.timer = setTimeout(move, EVERY_MS)
    this.showState()
  }

  rest() {
    this.playing = false
    this.resting = setTimeout(() => this.start(), REST_MS)
  }

  pause() {
    clearTimeout(this.timer)
    clearTimeout(this.resting)
    this.playing = false
    this.resting = null
    this.showState()
  }

  toggle() {
    if (!this.told) return
    keepStopped(this.goesOn)
    if (this.goesOn) this.pause()
    else this.start()
  }

  showState() {
    setText(this.play, this.goesOn ? "Pause" : "Play")
    this.root.toggleAttribute("data-plays", this.goesOn)
  }
}

// One of the two panes: what the changed step wrote in a run.
function pane(which) {
  const dot = el("i", { class: "dot" })
  const name = el("b", {})
  const read = el("span", { class: "muted small" })
  const value = el("b", { class: "story-value" })
  const body = el("div", { class: "pane-body prose", tabindex: "0" })
  const streamed = new StreamedMarkdown(body)
  const coming = el("p", { class: "muted story-coming" })
  const element = el(
    "article",
    { class: `card story-pane ${which}` },
    el("header", {}, dot, name, read, el("span", { class: "spring" }), value),
    coming,
    body,
  )
  let told = null
  let run = 0
  return {
    element,
    take(story, index, colour) {
      told = story
      run = index
      dot.setAttribute("style", colour)
      setText(name, `Step ${story.step} in the ${which} run`)
      body.setAttribute("aria-label", `Output of step ${story.step} in the ${which} run`)
      const steps = [story.before, story.after][index]
      setText(read, `read step${steps.length === 1 ? "" : "s"} ${steps.join(" and ")}`)
      element.classList.add(story.answers[index].right ? "right" : "wrong")
      setText(coming, index ? "It runs again after the change." : `It begins after step ${steps.join(" and ")}.`)
    },
    show(model, ended) {
      const step = model?.step(String(told.step))
      const text = step?.output ?? ""
      const over = step?.status === "completed"
      const follows = !over
      coming.hidden = text !== ""
      body.hidden = text === ""
      if (text !== "") streamed.show(text, over)
      setText(value, over ? (told.values[run][told.step] ?? "") : "")
      element.toggleAttribute("data-running", step?.status === "running")
      if (follows) body.scrollTop = body.scrollHeight
      else if (ended && !element.hasAttribute("data-ended")) body.scrollTop = 0
      element.toggleAttribute("data-ended", ended)
    },
  }
}

// A part of the column at the right.
function side(label) {
  const value = el("div", { class: "story-large" })
  const note = el("div", { class: "muted small" })
  const parts = el("div", { class: "story-reached" }, value, note)
  const element = el("div", {}, el("div", { class: "story-label" }, label), parts)
  return {
    element,
    take(text, said, right) {
      setText(value, visible(text))
      setText(note, visible(said))
      element.classList.add(right ? "right" : "wrong")
    },
    takeChange({ step, gained, before, after }) {
      const read = gained.map((index) => `step ${index}`).join(" and ")
      const lists = [before, after].map((list) => el("code", {}, isolated(accessList(list))))
      parts.replaceChildren(
        el("div", {}, `Step ${step} may also read ${read}`),
        el("div", { class: "number" }, lists[0], " → ", lists[1]),
      )
    },
  }
}

function keepStopped(stops) {
  if (stops) sessionStorage.setItem(STOPPED, "yes")
  else sessionStorage.removeItem(STOPPED)
}
