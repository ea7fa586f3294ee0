// A page without a browser: the view of a run in happy-dom, and what a person does there. It has no layout and no
// picture; a test that needs these is in tests/browser.
//
// Its runs are those of runs.py, and nothing is fetched: base.js beside this file stands for the component's own.

import { execFileSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { registerHooks } from "node:module"
import path from "node:path"
import { after } from "node:test"
import { setImmediate } from "node:timers"
import vm from "node:vm"

import { Window } from "happy-dom"

const ROOT = path.resolve(import.meta.dirname, "../..")
const LIVE = path.join(ROOT, "pages/components/live_workflow")
const NAMES =
  "document history innerHeight innerWidth location matchMedia CSSStyleSheet Element Event FontFace HTMLElement KeyboardEvent MutationObserver Node NodeFilter PopStateEvent Range ResizeObserver sessionStorage"
const BOUND = "addEventListener dispatchEvent getComputedStyle getSelection removeEventListener"

const MOST_TURNS = 20_000

let frames = new Map()

const window = new Window({ url: "http://localhost/run?run=r", width: 1280, height: 720 })
Object.defineProperty(window.document, "compatMode", { value: "CSS1Compat" })
globalThis.window = window
for (const name of NAMES.split(" "))
  Object.defineProperty(globalThis, name, { value: window[name], configurable: true, writable: true })
for (const name of BOUND.split(" ")) globalThis[name] = window[name].bind(window)
Object.defineProperty(globalThis, "navigator", { value: window.navigator, configurable: true })
Object.assign(globalThis, { CSS: { highlights: new Map() }, Highlight: Set })
// happy-dom gives nothing here.
window.CSSStyleSheet.prototype.replace = async function (text) {
  this.replaceSync(text)
  return this
}
// A fault of a listener fails the test that waits next.
let fault = null
window.addEventListener("error", ({ error }) => (fault = error))
// Frames are drawn when a test waits for something.
let frame = 0
globalThis.requestAnimationFrame = window.requestAnimationFrame = (draw) => {
  frames.set((frame += 1), draw)
  return frame
}
globalThis.cancelAnimationFrame = window.cancelAnimationFrame = (which) => frames.delete(which)
// A canvas that takes all strokes and keeps none of them.
const measured = { width: 40, actualBoundingBoxAscent: 10, actualBoundingBoxDescent: 3 }
const pen = new Proxy(
  { measureText: () => measured, createLinearGradient: () => ({ addColorStop() {} }) },
  { get: (kept, name) => kept[name] ?? (() => {}) },
)
window.HTMLCanvasElement.prototype.getContext = () => pen

const base = import.meta.resolve("./base.js")
registerHooks({ resolve: (name, of, next) => next(name === "./base.js" ? base : name, of) })
for (const library of ["katex.min.js", "mhchem.min.js"]) {
  const source = readFileSync(path.join(LIVE, "vendor/katex", library), "utf8")
  vm.compileFunction(source, ["self", "document"]).call(window, window, document)
}

const { LiveWorkflow } = await import(path.join(LIVE, "assets/view.js"))
const { enter } = await import(path.join(LIVE, "assets/draw_formulas.js"))

export const told = JSON.parse(
  execFileSync(path.join(ROOT, ".venv/bin/python"), ["-m", "tests.js.runs"], {
    cwd: ROOT,
    maxBuffer: 1e9,
    stdio: ["ignore", "pipe", "ignore"],
  }),
)

// Waits for a state, by turns of the event loop.
export async function becomes(state) {
  for (let turn = 0; turn < MOST_TURNS; turn += 1) {
    await new Promise(setImmediate)
    const due = frames
    frames = new Map()
    for (const draw of due.values()) draw(performance.now())
    if (fault) throw fault
    const found = state()
    if (found) return found
  }
  throw new Error(`never true: ${state}`)
}

// Draws some frames: what waits for one is drawn then.
export async function drawn() {
  for (let turn = 0; turn < 4; turn += 1) await becomes(() => true)
}

let shown = null
after(async () => {
  shown?.view.destroy()
  await window.happyDOM.close()
})

// Shows a run that is over. `at`: the moment in seconds that its address names. `messages`: what the server sends
// instead of its last state.
export async function show(run, { at = null, messages = [run.finished] } = {}) {
  shown?.view.destroy()
  document.body.replaceChildren()
  const host = document.createElement("div")
  document.body.append(host)
  const parent = host.attachShadow({ mode: "open" })
  enter(parent)
  const connect = (_, { onMessage, onState }) => {
    queueMicrotask(() => {
      onState("over")
      messages.forEach(onMessage)
    })
    return { close() {} }
  }
  const written = []
  const place = { read: () => at, write: (moment) => written.push(moment) }
  const view = new LiveWorkflow(parent, { connect, record: async () => run.recording, place })
  const data = { run_id: messages[0].run.run_id, editable: false, go_on: null, editor: null, edited: null, ended: true }
  const intents = []
  view.update({ data, setStateValue() {}, setTriggerValue: (_, intent) => intents.push(intent) })
  shown = new Shown(view, { written, intents })
  await becomes(() => shown.find(".bar .status")?.textContent)
  await drawn()
  return shown
}

class Shown {
  constructor(view, kept) {
    Object.assign(this, { view, root: view.root, ...kept })
  }

  find(selector) {
    return this.root.querySelector(selector)
  }

  all(selector) {
    return [...this.root.querySelectorAll(selector)]
  }

  // The text of a part, with its white space as a browser shows it.
  text(part) {
    const found = typeof part === "string" ? this.find(part) : part
    return found.textContent.replace(/\s+/g, " ").trim()
  }

  texts(selector) {
    return this.all(selector).map((each) => this.text(each))
  }

  // Whether no part around it is hidden. What a stylesheet hides is seen in a browser alone.
  visible(part) {
    const found = typeof part === "string" ? this.find(part) : part
    return found !== null && found.closest("[hidden]") === null && !found.closest("details:not([open]) > :not(summary)")
  }

  // A control by its name, as a screen reader says it.
  named(name, where = "button, a, [role=tab], [role=button]") {
    const matches = (text) => (name instanceof RegExp ? name.test(text) : text === name)
    return this.all(where).find(
      (each) => matches(each.getAttribute("aria-label") ?? each.textContent.trim()) && this.visible(each),
    )
  }

  get focused() {
    return this.root.getRootNode().activeElement
  }

  async click(part) {
    const found = typeof part === "string" ? (this.named(part) ?? this.find(part)) : part
    found.focus()
    found.click()
    await drawn()
  }

  // A key at what has the focus. A button is pressed by Enter and Space unless somebody takes the key.
  async press(...keys) {
    for (const key of keys) {
      const on = this.focused ?? document.body
      const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true })
      if (on.dispatchEvent(event) && on.tagName === "BUTTON" && (key === "Enter" || key === " ")) on.click()
      await drawn()
    }
  }

  tab(name, where = "") {
    return this.click(this.named(name, `${where} [role=tab]`))
  }
}
