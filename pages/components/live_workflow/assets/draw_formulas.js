// Draws formulas with KaTeX, which is loaded with the first formula of a text. A formula is data: one that would load,
// link, name or define anything is not drawn, and neither is one that KaTeX cannot read. Its source is shown instead.

import { BASE, PACKED } from "./base.js"

const FOLDER = BASE ? new URL("api/katex/", BASE) : null
// Time for drawing in one frame. Other formulas wait and show their source meanwhile.
const SLICE_MS = 8
const KEPT = 400
// A definition can make a short formula very large even within the limit of `maxExpand`.
const REFUSED =
  /\\(?:href|url|includegraphics|html[A-Z][a-z]*|[gex]?def|(?:future)?let|global|long|(?:re)?newcommand|providecommand)(?![a-z])/
const OPTIONS = {
  throwOnError: true,
  trust: false,
  strict: "ignore",
  maxExpand: 500,
  maxSize: 12,
  output: "htmlAndMathml",
}

const roots = new Set()
const drawn = new Map() // by source: the element to copy, or null where it cannot be drawn
const waiting = []
let library = null // or the promise of it
let katex = null
let sheet = null
let chemistry = null
let spentMs = 0
let clearing = false

// Prepares the shadow tree `root` for formulas.
export function enter(root) {
  roots.add(root)
  if (sheet) root.adoptedStyleSheets.push(sheet)
}

export const leave = (root) => roots.delete(root)

// The element of `formula`, as `takeOut` gives it (`instead`: what stands there in place of its source): drawn at once where that is quick, else soon.
export function formulaElement(formula) {
  const element = document.createElement("span")
  element.className = formula.display ? "formula display" : "formula"
  element.dir = "ltr"
  element.dataset.source = formula.source
  element.classList.add("source")
  element.textContent = formula.instead ?? formula.source
  if (!formula.drawn || REFUSED.test(formula.tex)) return element
  if (!fill(element, formula)) {
    waiting.push([element, formula])
    if (katex) later()
    else load()
  }
  return element
}

// Says whether nothing is left to do for `element`.
function fill(element, formula) {
  if (!katex || (/\\(?:ce|pu)\{/.test(formula.tex) && chemistry !== "there")) return false
  const key = formula.display + formula.tex
  if (!drawn.has(key)) {
    if (spentMs > SLICE_MS) return false
    const began = performance.now()
    drawn.set(key, draw(formula))
    spentMs += performance.now() - began
    clearSpent()
    if (drawn.size > KEPT) drawn.delete(drawn.keys().next().value)
  }
  const content = drawn.get(key)
  if (content) {
    element.classList.remove("source")
    element.replaceChildren(content.cloneNode(true))
  }
  return true
}

function draw({ tex, display }) {
  const holder = document.createElement("span")
  try {
    // A label draws nothing.
    const macros = { "\\mbox": "\\text" } // anew for each: a formula can add to them
    katex.render(tex.replace(/\\label\{[^{}]*\}/g, ""), holder, { ...OPTIONS, macros, displayMode: display })
  } catch {
    // The formula is no TeX, exceeds the limits (errors of KaTeX), or is nested too deeply (an error of the browser).
    return null
  }
  return holder.firstChild
}

function clearSpent() {
  if (clearing) return
  clearing = true
  setTimeout(() => {
    clearing = false
    spentMs = 0
    later()
  })
}

let due = false

function later() {
  if (due || !waiting.length) return
  due = true
  setTimeout(() => {
    due = false
    drawWaiting()
  })
}

// Skips elements that have left the page meanwhile.
function drawWaiting() {
  if (waiting.some(([, { tex }]) => /\\(?:ce|pu)\{/.test(tex))) loadChemistry()
  for (const [element, formula] of waiting.splice(0)) {
    if (element.isConnected && !fill(element, formula)) waiting.push([element, formula])
  }
  if (waiting.length && chemistry !== "loading") later()
}

function load() {
  library ??= Promise.all([script("katex.min.js"), styles()]).then(
    () => {
      katex = window.katex
      later()
    },
    (error) => {
      // The sources stay on the page, and the next formula loads KaTeX again.
      library = null
      console.warn(error)
    },
  )
}

function loadChemistry() {
  if (chemistry) return
  chemistry = "loading"
  script("mhchem.min.js").then(
    () => {
      chemistry = "there"
      later()
    },
    (error) => {
      chemistry = null
      waiting.length = 0
      console.warn(error)
    },
  )
}

function script(name) {
  if (PACKED) return PACKED.formulas ? Promise.resolve() : new Promise(() => {}) // then the sources stay
  return new Promise((resolve, reject) => {
    const element = document.createElement("script")
    element.src = new URL(name, FOLDER)
    element.onload = resolve
    element.onerror = () => {
      element.remove()
      reject(new Error(`${name} could not be loaded`))
    }
    document.head.append(element)
  })
}

// Fonts belong to the document: browsers ignore fonts that a shadow tree declares.
async function styles() {
  const fonts = /@font-face\{([^}]*)\}/g
  const text = PACKED ? PACKED.formulas : await stylesheet()
  for (const [, rule] of text.matchAll(fonts)) {
    const value = (name) => new RegExp(`${name}:([^;]*)`).exec(rule)[1].trim()
    const [, file] = /url\(((?:fonts\/|data:)[^)]+)\)/.exec(rule)
    const descriptors = { style: value("font-style"), weight: value("font-weight"), display: "block" }
    document.fonts.add(new FontFace(value("font-family"), `url(${PACKED ? file : new URL(file, FOLDER)})`, descriptors))
  }
  sheet = await new CSSStyleSheet().replace(text.replace(fonts, ""))
  for (const root of roots) root.adoptedStyleSheets.push(sheet)
}

async function stylesheet() {
  const response = await fetch(new URL("katex.min.css", FOLDER))
  if (!response.ok) throw new Error(`katex.min.css could not be loaded: ${response.status}`)
  return response.text()
}
