// The matrix of the Context page: a table whose cells are buttons. Arrow keys, Home and End move between them; a click
// or Enter tells Python which cell it was. All text is data and is set as text.

const ARROWS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
}

// Steps that fit beside each other with their names.
const MOST_WIDE = 8

// Streamlit can lose a state that is set while the page is drawn. A choice that was not answered is sent again.
const AGAIN_MS = 2000
const MOST_TRIES = 5

const shown = new WeakMap()

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
  element.append(...children)
  return element
}

const dot = (colour) => el("i", { class: "agent-dot", style: `background: ${colour}` })

// Of many steps a head has room for the number alone: the rest is its hint, and the agent's name is in the step's row.
function head({ name, agent, colour, status, tokens }, compact) {
  const title = el("b", {}, compact ? name : `${name} · ${agent}`)
  const facts = `${status} · ${tokens}`
  if (compact) return el("th", { scope: "col", title: `step ${name} · ${agent}: ${facts}` }, dot(colour), title)
  return el("th", { scope: "col" }, dot(colour), title, el("span", { class: "muted" }, facts))
}

function rowHead({ name, agent, colour }) {
  const own = agent
    ? [dot(colour), el("b", {}, name), el("span", { class: "muted" }, ` ${agent}`)]
    : [el("b", {}, name)]
  return el("th", { scope: "row" }, ...own)
}

function cellButton(cell, row, column, colour) {
  const button = el("button", {
    type: "button",
    class: `context-cell context-${cell.state}`,
    style: `--of: ${colour}`,
    "data-key": cell.key,
    "data-row": row,
    "data-column": column,
    "aria-label": cell.said,
    "aria-pressed": "false",
    title: cell.said,
    tabindex: "-1",
  })
  button.append(el("span", { class: "sign" }, cell.sign), el("span", { class: "number" }, cell.tokens))
  return button
}

function build(data) {
  const compact = data.heads.length > MOST_WIDE
  const heads = el("tr", {}, el("th", {}), ...data.heads.map((step) => head(step, compact)))
  const rows = data.rows.map((row, at) =>
    el(
      "tr",
      {},
      rowHead(row),
      ...row.cells.map((cell, column) => el("td", {}, ...(cell ? [cellButton(cell, at, column, row.colour)] : []))),
    ),
  )
  const table = el("table", { class: `context-table matrix${compact ? " compact" : ""}`, "aria-label": data.label })
  table.append(el("thead", {}, heads), el("tbody", {}, ...rows))
  return table
}

class Matrix {
  constructor(parent) {
    this.box = el("div", { class: "context-scroll both" })
    this.wanted = null // the cell that was chosen and that Python has not answered
    parent.append(this.box)
    this.box.addEventListener("click", (event) => this.choose(event.target.closest("button")))
    this.box.addEventListener("keydown", (event) => this.move(event))
  }

  update(data, send) {
    this.send = send
    const drawn = JSON.stringify([data.heads, data.rows])
    if (drawn !== this.drawn) {
      const key = this.box.contains(document.activeElement) ? document.activeElement.dataset.key : null
      this.drawn = drawn
      this.box.replaceChildren(build(data))
      this.buttons = [...this.box.querySelectorAll("button")]
      if (key) this.buttons.find((button) => button.dataset.key === key)?.focus()
    }
    if (data.chosen === this.wanted) this.wanted = null
    this.mark(this.wanted ?? data.chosen)
  }

  // Of all cells one is in the order of the Tab key: the chosen one, else the first.
  mark(key) {
    const chosen = this.buttons.find((button) => button.dataset.key === key)
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(button === chosen))
    const kept = this.buttons.find((button) => button === document.activeElement)
    this.stop(kept ?? chosen ?? this.buttons[0])
  }

  stop(one) {
    for (const button of this.buttons) button.tabIndex = button === one ? 0 : -1
  }

  choose(button) {
    if (!button) return
    this.stop(button)
    this.wanted = button.dataset.key
    this.mark(this.wanted)
    this.sendUntilAnswered(1)
  }

  sendUntilAnswered(tries) {
    this.send(this.wanted)
    clearTimeout(this.again)
    this.again = setTimeout(() => {
      if (this.wanted === null || !this.box.isConnected) return
      if (tries < MOST_TRIES) this.sendUntilAnswered(tries + 1)
    }, AGAIN_MS)
  }

  move(event) {
    const from = event.target.closest("button")
    const step = ARROWS[event.key]
    if (!from || (!step && event.key !== "Home" && event.key !== "End")) return
    event.preventDefault()
    const to = step ? this.next(from, step) : this.ofRow(from).at(event.key === "Home" ? 0 : -1)
    if (!to) return
    this.stop(to)
    to.focus()
  }

  ofRow(from) {
    return this.buttons.filter((button) => button.dataset.row === from.dataset.row)
  }

  // The nearest cell in that direction; where the row ends earlier, none.
  next(from, [down, right]) {
    const row = Number(from.dataset.row) + down
    const column = Number(from.dataset.column) + right
    return this.buttons.find((button) => Number(button.dataset.row) === row && Number(button.dataset.column) === column)
  }
}

export default function mount({ data, parentElement, setStateValue }) {
  let matrix = shown.get(parentElement)
  if (!matrix) {
    matrix = new Matrix(parentElement)
    shown.set(parentElement, matrix)
  }
  matrix.update(data, (key) => setStateValue("cell", key))
}
