// The tour: a strip in the page that says what there is to see, a line from it to a ring around that, and the way on. It
// covers nothing, and the page stays usable. Python is told where the person wants to go. All text is set as text.

import { lineTo, ringOf } from "./lead.js"

const LOOK_MS = 150
// When a move brought no other stop (Python could not begin a run), the strip can be used again.
const AGAIN_MS = 3000
// Where the focus goes on: after the last stop the task box; where the tour was left, the button that takes it up; else
// the page, which keys scroll.
const TASK = ".st-key-task-box textarea"
const RESUME = ".st-key-take-tour button"
const PAGE = '[data-testid="stMain"]'
// How long the next page may take to come.
const COMES_MS = 8000
const DIALOG = '[role="dialog"]'
const STILL = "(prefers-reduced-motion: reduce)"
const KEYS = { ArrowRight: "next", ArrowLeft: "back", Enter: "next", Escape: "leave" }

// Part of the script, so that the strip is never shown without its styles.
const styles = await fetch(new URL("strip.css", import.meta.url)).then((response) => response.text())
const own = await new CSSStyleSheet().replace(styles)

const views = new WeakMap()
// The tour plays on when it comes to another page, where the strip is mounted anew.
let playing = false
let begun = null

export default function mount({ parentElement, data, setTriggerValue }) {
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = [own]
    view = new Strip(parentElement)
    views.set(parentElement, view)
  }
  const call = (view.lastCall = {})
  view.update(data, setTriggerValue)
  return () => {
    if (view.lastCall !== call) return
    view.destroy()
    views.delete(parentElement)
  }
}

class Strip {
  constructor(parent) {
    const button = (name, words, title) => el("button", { type: "button", class: name, title }, words)
    this.number = el("b")
    this.of = el("span")
    this.title = el("h2", { id: "title" })
    this.text = el("p", { id: "text" })
    this.leave = button("leave", "Leave", "Leave the tour (Escape)")
    this.play = button("play", "", "")
    this.back = button("back", "Back", "The stop before (←)")
    this.onward = el("span")
    this.next = el("button", { type: "button", class: "next" }, this.onward, el("kbd", { "aria-hidden": "true" }, "→"))
    this.leave.addEventListener("click", () => this.go("leave"))
    this.play.addEventListener("click", () => this.toggle())
    this.back.addEventListener("click", () => this.go("back"))
    this.next.addEventListener("click", () => this.go("next"))
    this.strip = el(
      "section",
      { class: "strip", "aria-labelledby": "title", "aria-describedby": "text", tabindex: "-1" },
      el("div", { class: "count" }, this.number, this.of),
      el("div", { class: "words" }, this.title, this.text),
      el("div", { class: "actions" }, this.leave, this.play, this.back, this.next),
    )
    // The focus stays in the strip from stop to stop, so only this tells a screen reader of the next one.
    this.aloud = el("div", { class: "aloud", role: "status" })
    this.ring = svg("rect", { rx: "13" })
    this.line = svg("path")
    this.dot = svg("circle")
    const drawn = svg("svg", {}, this.line, this.dot, this.ring)
    this.lead = el("div", { class: "lead", popover: "manual", "aria-hidden": "true" }, drawn)
    parent.append(this.strip, this.aloud, this.lead)
    // The top layer: nothing of the page can cut the line off or move it.
    this.lead.showPopover()
    this.host = parent.host
    this.listening = new AbortController()
    const { signal } = this.listening
    document.addEventListener("keydown", (event) => this.key(event), { signal })
    for (const kind of ["wheel", "pointerdown"]) {
      document.addEventListener(kind, (event) => this.touched(event), { signal, capture: true, passive: true })
    }
    for (const kind of ["scroll", "resize"]) {
      window.addEventListener(kind, () => this.show(), { signal, capture: true, passive: true })
    }
    this.timer = setInterval(() => this.look(), LOOK_MS)
  }

  destroy() {
    clearInterval(this.timer)
    this.listening.abort()
    const ours = this.ours()
    for (const part of [this.strip, this.aloud, this.lead]) part.remove()
    if (this.over) focusWhenThere(TASK)
    // Whoever left by key goes on from here, and not from the top of the page. A strip that comes next has the focus.
    else if (ours)
      setTimeout(
        () => lost() && (document.querySelector(RESUME) ?? document.querySelector(PAGE))?.focus(QUIETLY),
        LOOK_MS,
      )
  }

  update(data, setTriggerValue) {
    const first = this.data === undefined
    const another = this.data?.stop !== data.stop
    this.data = data
    this.setTriggerValue = setTriggerValue
    this.number.textContent = data.n
    this.of.textContent = `of ${data.of}`
    this.title.textContent = data.title
    this.text.textContent = data.fault ?? data.text
    this.text.classList.toggle("fault", data.fault !== null)
    this.back.hidden = data.n === 1
    this.next.setAttribute("aria-disabled", data.ready ? "false" : "true")
    this.onward.textContent = data.ready ? data.onward : "Running…"
    // Whoever has begun the tour on this page sees it play; whoever opens it at a stop, or wants no motion, does not.
    if (data.begun !== begun) {
      begun = data.begun
      if (begun !== null && data.n === 1) playing = !matchMedia(STILL).matches
    }
    this.showPlaying()
    if (another) this.arrive(first)
    this.show()
  }

  arrive(first) {
    this.stood = 0
    this.moving = 0
    this.pressed = 0
    this.touchedPage = false
    this.strip.dataset.stop = this.data.stop
    const { n, of, title, text } = this.data
    if (!first) this.aloud.textContent = `Tour, ${n} of ${of}. ${title}. ${text}`
    if (first || this.ours()) this.strip.focus(QUIETLY)
  }

  // Whether keys are the tour's: nothing else has the focus.
  ours() {
    const active = document.activeElement
    return lost() || active === this.host || this.host.contains(active)
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.ours()) return
    const inside = this.strip.getRootNode().activeElement
    const onButton = inside instanceof HTMLButtonElement && this.strip.contains(inside)
    // A button that has the focus is pressed by the browser.
    if (onButton && (event.key === "Enter" || event.key === " ")) return
    if (event.key === " ") this.toggle()
    else if (KEYS[event.key]) this.go(KEYS[event.key])
    else return
    event.preventDefault()
  }

  // Whoever does something by hand on the page does it at a pace of their own.
  touched(event) {
    if (event.composedPath().includes(this.strip)) return
    this.touchedPage = true
    this.setPlaying(false)
  }

  toggle() {
    this.setPlaying(!playing)
    this.stood = 0
  }

  setPlaying(on) {
    playing = on
    this.showPlaying()
  }

  showPlaying() {
    const words = playing ? "Pause the tour" : "Play the tour by itself"
    this.play.textContent = playing ? "‖" : "▶"
    this.play.setAttribute("aria-label", words)
    this.play.title = `${words} (Space)`
    this.play.hidden = this.data?.n === this.data?.of
  }

  go(to) {
    const { data } = this
    if (performance.now() - this.moving < AGAIN_MS && this.moving) return
    if ((to === "next" && !data.ready) || (to === "back" && data.n === 1)) return
    this.over = to === "next" && data.n === data.of
    if (to !== "next" || this.over) this.setPlaying(false)
    this.moving = performance.now()
    this.setTriggerValue("move", { stop: data.stop, to })
  }

  look() {
    if (document.hidden || !this.data) return
    const target = find(this.data.at)
    const here = target !== null && isShown(target)
    this.press()
    // However slowly the page is drawn, the target is in view until the person uses the page.
    if (here && !this.touchedPage) target.scrollIntoView({ block: "nearest" })
    this.show()
    if (!here || !playing || !this.data.ready || this.data.n === this.data.of) return
    this.stood += LOOK_MS
    if (this.stood >= this.data.seconds * 1000) this.go("next")
  }

  // Presses one after the other, as each appears. What is unfolded already stays so.
  press() {
    const wanted = this.data.press[this.pressed]
    const element = wanted && find(wanted)
    if (!element) return
    this.pressed += 1
    const ours = this.ours()
    if (element.getAttribute("aria-expanded") !== "true") element.click()
    if (ours) this.strip.focus(QUIETLY)
  }

  show() {
    if (!this.data) return
    const target = find(this.data.at)
    const there = target !== null && isShown(target) && document.querySelector(DIALOG) === null
    this.lead.hidden = !there
    if (!there) return
    const box = target.getBoundingClientRect()
    const card = cardOf(target).getBoundingClientRect()
    const ring = ringOf(box, card)
    const { left, top, width, height } = ring
    setAttributes(this.ring, { x: left, y: top, width, height })
    const line = lineTo(ring, card, this.strip.getBoundingClientRect())
    this.line.setAttribute("d", line?.path ?? "")
    setAttributes(this.dot, { r: line === null ? 0 : 4, cx: line?.end.x ?? 0, cy: line?.end.y ?? 0 })
  }
}

const QUIETLY = { preventScroll: true }
const lost = () => document.activeElement === document.body || document.activeElement === null

function isShown(element) {
  const { width, height } = element.getBoundingClientRect()
  return width > 0 && height > 0
}

function focusWhenThere(selector, until = performance.now() + COMES_MS) {
  const found = document.querySelector(selector)
  if (found) found.focus()
  else if (performance.now() < until) setTimeout(() => focusWhenThere(selector, until), LOOK_MS)
}

// The nearest element around a target, or the target, that has a border: lines keep off it.
function cardOf(target) {
  for (let each = target; each; each = each.parentElement ?? each.getRootNode().host) {
    if (parseFloat(getComputedStyle(each).borderLeftWidth) > 0) return each
  }
  return target
}

// Follows a path of selectors, each but the first through the shadow trees below the element before.
function find([first, ...rest]) {
  let found = document.querySelector(first)
  for (const selector of rest) {
    if (found === null) return null
    const hosts = [found, ...found.querySelectorAll("*")].filter((each) => each.shadowRoot)
    found = hosts.map((each) => each.shadowRoot.querySelector(selector)).find(Boolean) ?? null
  }
  return found
}

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  setAttributes(element, attributes)
  element.append(...children)
  return element
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag)
  setAttributes(element, attributes)
  element.append(...children)
  return element
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value)
  }
}
