// What a person changes of the edited plan, and what the plan allows. Steps are named by the editor's keys.

const AGAIN_MS = 4000
const TEXTS = new Set(["instruct", "write"])
// Which plan they lead to only Python knows.
const TURNS = new Set(["undo", "redo", "reset"])
const LOOK_MS = 40

// Whether Streamlit draws the page. A message at that moment would make it begin again, and take our element away for a
// moment.
const pageIsDrawn = () => document.querySelector('[data-test-script-state="running"]') !== null

// Holds the changes that Python has not taken yet. Each message has all of them, because of two messages that wait for a
// busy server only the later one arrives. A message goes when the page rests; what is not answered is sent again.
export class PlanChanges {
  constructor(send, busy = pageIsDrawn) {
    this.send = send
    this.busy = busy
    this.page = crypto.getRandomValues(new Uint32Array(3)).join("-")
    this.last = 0
    this.told = 0
    this.times = 0
    this.waiting = []
    this.runId = null
  }

  // Forgets what was not taken, because the plan of another run is edited, or none.
  of(runId) {
    this.runId = runId
    this.waiting = []
  }

  // A text that is typed on takes the place of the one that waits.
  make(change) {
    this.last += 1
    const before = this.waiting.at(-1)
    const typedOn = TEXTS.has(change.kind) && before?.kind === change.kind && before.step === change.step
    const others = typedOn ? this.waiting.slice(0, -1) : this.waiting
    this.waiting = [...others, { number: this.last, ...change }]
    this.tell()
  }

  // `times` makes each message another value: an equal one would not be sent.
  tell(again = false) {
    clearTimeout(this.telling)
    if (!this.waiting.length) return
    if (this.busy()) {
      this.telling = setTimeout(() => this.tell(again), LOOK_MS)
      return
    }
    if (again || this.last > this.told) {
      this.told = this.last
      this.times += 1
      this.send({ page: this.page, run_id: this.runId, changes: this.waiting, times: this.times })
    }
    this.telling = setTimeout(() => this.tell(true), AGAIN_MS)
  }

  destroy() {
    clearTimeout(this.telling)
  }

  // `taken`: the last change that Python took, and of which page.
  taken(taken) {
    if (taken?.page === this.page) this.waiting = this.waiting.filter(({ number }) => number > taken.number)
  }
}

// Returns the steps of the plan that is drawn, in their order: [{key, number, agent, reads}]. Without removed steps, and
// without those of inner rounds, which no edit reaches.
export function stepsOf(model) {
  if (model.edited) {
    const there = model.edited.steps.filter(({ number }) => number !== null)
    return there.toSorted((a, b) => a.number - b.number)
  }
  const first = model.ordered().filter(({ path }) => path.length === 1)
  return first.map(({ path: [number], agent, reads }) => ({ key: String(number), number, agent, reads: reads ?? [] }))
}

// Returns the steps as they will be once Python has made the changes that wait, but for "undo" and "redo", whose plans
// only Python has.
export const expected = (steps, waiting) => waiting.reduce(made, steps)

function made(steps, { kind, step, read, to, by }) {
  const own = steps.find(({ key }) => key === String(step))
  if (!own) return steps
  if (kind === "move") return moved(steps, own.number, to)
  if (kind === "shift") return own.number + by in steps ? moved(steps, own.number, own.number + by) : steps
  const other = steps.find(({ key }) => key === String(read))
  if (!other) return steps
  const without = own.reads.filter((each) => each !== other.number)
  const reads = kind === "give" ? [...without, other.number].toSorted((a, b) => a - b) : without
  return steps.with(own.number, { ...own, reads })
}

function moved(steps, from, to) {
  const order = ordered(steps, from, to)
  const now = new Map(order.map(({ number }, place) => [number, place]))
  return order.map((step, number) => {
    const reads = step.reads.map((read) => now.get(read)).filter((read) => read < number)
    return { ...step, number, reads: reads.toSorted((a, b) => a - b) }
  })
}

function ordered(steps, from, to) {
  const order = [...steps]
  order.splice(to, 0, ...order.splice(from, 1))
  return order
}

// Says why step `reader` cannot be given access to step `read`; empty: it can.
export function refusal(read, reader) {
  if (read.key === reader.key) return "a step does not see itself"
  if (reader.number < read.number) return `step ${reader.number} comes before step ${read.number}`
  if (reader.reads.includes(read.number)) return `step ${reader.number} sees step ${read.number} already`
  return ""
}

// Returns the index that step `from` gets if it is dropped before or after step `at`.
export function droppedAt(from, at, after) {
  const place = at + (after ? 1 : 0)
  return place > from ? place - 1 : place
}

// Returns how many accesses fall away if step `from` becomes step `to`.
export function lostByMove(steps, from, to) {
  const count = (all) => all.reduce((sum, { reads }) => sum + reads.length, 0)
  return count(steps) - count(moved(steps, from, to))
}

// Returns the fields of the steps as they will be once Python has made the changes that wait: [{key, agent, access}].
export function fieldsAsMeant(steps, waiting) {
  const meant = new Map(steps.map((step) => [step.key, { ...step }]))
  const earlier = ({ number }) => steps.slice(0, number).map(({ key }) => key)
  for (const { kind, step, read, agent } of waiting) {
    if (TURNS.has(kind)) break
    const own = meant.get(String(step))
    if (!own) continue
    const reads = own.access === "all" ? earlier(own) : own.access
    if (kind === "assign") own.agent = agent
    else if (kind === "all") own.access = "all"
    else if (kind === "only") own.access = reads
    else if (kind === "cut") own.access = reads.filter((key) => key !== String(read))
    else if (kind === "give" && !reads.includes(String(read))) own.access = [...reads, String(read)]
  }
  return [...meant.values()]
}

// Returns the text of a field as the person left it; null: what stands there stays, because it will be another one.
export function textAsMeant(key, kind, known, waiting) {
  const last = waiting.findLast(
    (change) => TURNS.has(change.kind) || (change.kind === kind && String(change.step) === key),
  )
  if (!last) return known
  return last.kind === kind ? last.text : null
}
