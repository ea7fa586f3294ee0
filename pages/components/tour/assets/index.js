// The card of the tour: it stands beside the element that it explains, and tells Python where the person wants to go.
// The page below stays usable. All text is data and is set as text.

import { inTheWay, place } from "./place.js"

const LOOK_MS = 150
// When a move brought no other stop (Python could not begin a run), the card can be used again.
const AGAIN_MS = 3000
// The button that goes on with a tour that was left.
const RESUME = ".st-key-take-tour button"
// Where it ends there is no such button: the page has the focus, and its keys scroll it.
const PAGE = '[data-testid="stMain"]'
const KEYS = { ArrowRight: "next", ArrowLeft: "back", Enter: "next", Escape: "leave" }

// Part of the script, so that the card is never measured without its styles.
const styles = await fetch(new URL("card.css", import.meta.url)).then((response) => response.text())
const own = await new CSSStyleSheet().replace(styles)

const views = new WeakMap()
// The tour plays on when it comes to another page, where the card is mounted anew.
let playing = false

export default function mount({ parentElement, data, setTriggerValue }) {
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = [own]
    view = new Card(parentElement)
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

class Card {
  constructor(parent) {
    this.count = el("span", { class: "count" })
    this.progress = el("i")
    this.leave = el("button", { type: "button", class: "leave", title: "Leave the tour (Escape)" }, "✕ Leave")
    this.title = el("h2", { id: "title" })
    this.text = el("p", { id: "text" })
    this.play = el("button", { type: "button", class: "play" })
    this.back = el("button", { type: "button", class: "back" }, "Back")
    this.next = el("button", { type: "button", class: "next" })
    this.leave.addEventListener("click", () => this.go("leave"))
    this.play.addEventListener("click", () => this.toggle())
    this.back.addEventListener("click", () => this.go("back"))
    this.next.addEventListener("click", () => this.go("next"))
    const bar = el("span", { class: "bar", "aria-hidden": "true" }, this.progress)
    const keys = el("p", { class: "keys", "aria-hidden": "true" }, "← → step · Space plays · Esc leaves")
    this.card = el(
      "section",
      { class: "card", role: "dialog", "aria-labelledby": "title", "aria-describedby": "text", tabindex: "-1" },
      el("div", { class: "head" }, this.count, bar, this.leave),
      this.title,
      this.text,
      el("div", { class: "actions" }, this.play, el("span", { class: "spring" }), this.back, this.next),
      keys,
    )
    // The focus stays in the card from stop to stop, so only this tells a screen reader of the next one.
    this.aloud = el("p", { class: "aloud", role: "status" })
    this.spot = el("div", { class: "spot", hidden: "" })
    this.layer = el("div", { class: "tour", popover: "manual" }, this.spot, this.card, this.aloud)
    parent.append(this.layer)
    // The top layer: nothing of the page can lie over it, cut it off or move it.
    this.layer.showPopover()
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
    this.card.style.visibility = "hidden"
  }

  destroy() {
    clearInterval(this.timer)
    this.listening.abort()
    const ours = this.ours()
    this.layer.remove()
    // Whoever left by key goes on from here, and not from the top of the page. A card that comes next has the focus.
    const lost = () => document.activeElement === document.body || document.activeElement === null
    const next = () => document.querySelector(RESUME) ?? document.querySelector(PAGE)
    if (ours) setTimeout(() => lost() && next()?.focus({ preventScroll: true }), LOOK_MS)
  }

  update(data, setTriggerValue) {
    const first = this.data === undefined
    const another = this.data?.stop !== data.stop
    this.data = data
    this.setTriggerValue = setTriggerValue
    this.count.textContent = `${data.n} of ${data.of}`
    this.progress.style.width = `${(100 * data.n) / data.of}%`
    this.title.textContent = data.title
    this.text.textContent = data.text
    this.back.hidden = data.n === 1
    this.next.setAttribute("aria-disabled", data.ready ? "false" : "true")
    this.next.textContent = !data.ready ? "Running…" : data.n === data.of ? "Finish" : "Next"
    this.showPlaying()
    // What is not visible takes no focus.
    this.show()
    if (another) this.arrive(first)
  }

  arrive(first) {
    this.stood = 0
    this.moving = 0
    this.pressed = false
    this.scrolled = false
    this.card.dataset.stop = this.data.stop
    const { n, of, title, text } = this.data
    if (!first) this.aloud.textContent = `Tour, ${n} of ${of}. ${title}. ${text}`
    if (first || this.ours()) this.card.focus({ preventScroll: true })
  }

  // Whether keys are the tour's: nothing else has the focus.
  ours() {
    const active = document.activeElement
    return !active || active === document.body || active === this.host || this.host.contains(active)
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !this.ours()) return
    const inside = this.layer.getRootNode().activeElement
    const onButton = inside instanceof HTMLButtonElement && this.card.contains(inside)
    // A button that has the focus is pressed by the browser.
    if (onButton && (event.key === "Enter" || event.key === " ")) return
    if (event.key === " ") this.toggle()
    else if (KEYS[event.key]) this.go(KEYS[event.key])
    else return
    event.preventDefault()
  }

  // Whoever does something by hand on the page does it at a pace of their own.
  touched(event) {
    if (event.composedPath().includes(this.card)) return
    this.scrolled = true
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
    this.play.textContent = playing ? "‖ Pause" : "▶ Play"
    this.play.setAttribute("aria-label", playing ? "Pause the tour" : "Play the tour by itself")
    this.play.hidden = this.data?.n === this.data?.of
  }

  go(to) {
    const { data } = this
    if (performance.now() - this.moving < AGAIN_MS && this.moving) return
    if ((to === "next" && !data.ready) || (to === "back" && data.n === 1)) return
    if (to !== "next" || data.n === data.of) this.setPlaying(false)
    this.moving = performance.now()
    this.setTriggerValue("move", { stop: data.stop, to })
  }

  look() {
    if (document.hidden || !this.data) return
    const target = find(this.data.at)
    const here = target !== null && this.isHere(target)
    if (here && !this.pressed) this.press()
    // However slowly the page is drawn, the target is in view until the person uses the page.
    if (here && !this.scrolled) bring(target, this.card.getBoundingClientRect())
    this.show()
    if (!here || !playing || !this.data.ready) return
    this.stood += LOOK_MS
    if (this.stood >= this.data.seconds * 1000) this.go("next")
  }

  isHere(target) {
    const { without } = this.data
    const { width, height } = target.getBoundingClientRect()
    return width > 0 && height > 0 && (without === null || document.querySelector(without) === null)
  }

  press() {
    const wanted = this.data.press.map(find)
    if (wanted.includes(null)) return
    this.pressed = true
    const ours = this.ours()
    for (const element of wanted) element.click()
    if (wanted.length && ours) this.card.focus({ preventScroll: true })
  }

  show() {
    if (!this.data) return
    const target = find(this.data.at)
    const box = target?.getBoundingClientRect()
    const there = box !== undefined && box.width > 0 && box.height > 0
    this.spot.hidden = !there
    const room = { width: window.innerWidth, height: window.innerHeight }
    const { width, height } = this.card.getBoundingClientRect()
    const found = place(there ? box : null, { width, height }, room)
    move(this.card, { left: found.left, top: found.top })
    if (there) move(this.spot, { left: box.left, top: box.top, width: box.width, height: box.height })
    this.card.style.visibility = "visible"
  }
}

function move(element, box) {
  for (const [name, value] of Object.entries(box)) {
    const text = `${Math.round(value)}px`
    if (element.style[name] !== text) element.style[name] = text
  }
}

function bring(target, { width, height }) {
  const box = target.getBoundingClientRect()
  const room = { width: window.innerWidth, height: window.innerHeight }
  const tall = box.height > room.height * 0.7
  // The page scrolls by whole pixels.
  const inView = box.top >= -1 && (box.bottom <= room.height + 1 || (tall && box.top < 80))
  if (inTheWay(box, { width, height }, room)) target.scrollIntoView({ block: "end" })
  else if (!inView) target.scrollIntoView({ block: tall ? "start" : "center" })
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
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
  element.append(...children)
  return element
}
