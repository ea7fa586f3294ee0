// Where cards and edges lie for one size of cards, in the drawing's own pixels, which grow with the page's text. Pure.
//
// Layers go from left to right; with `wraps`, rows of them go down like lines of text. An edge to the next layer is a
// curve. One that skips layers takes a lane above or below the cards that it passes, and all edges of one source share
// its lane. One that leads to another row runs back through the gap between the rows. Inner rounds hang below the first,
// each in its band.

// `gap`, `leastGap`: between the cards of a column. `apart`: between columns, at least, usually, at most. `lane`: between
// two lanes. `clear`: between a card and the first lane.
export const FULL = {
  width: 156, // 162 pixels and more in a window in which text is larger than in the smallest
  widest: 214,
  height: 88,
  gap: 18,
  leastGap: 12,
  apart: [20, 26, 130],
  lane: 16,
  clear: 20,
}
export const COMPACT = {
  width: 130,
  widest: 180,
  height: 46,
  gap: 12,
  leastGap: 6,
  apart: [20, 26, 40],
  lane: 8,
  clear: 12,
}
// Beside stacks: what is folded, and what still runs, have one height together.
export const FOLDED = { ...COMPACT, height: 42, leastGap: 4 }
export const STACK = { width: 134, widest: 156, height: 70, waiting: 30 }
// Beside stacks, cards give way to them.
const BESIDE_STACK = 110
const ARROW = 8
const PORT_GAP = 13
const LEAST_PORT_GAP = 4
const BAND_TITLE = 34
const BAND_GAP = 30
const BAND_PADDING = 16
// Between two rows: where the first line runs, how far the next one is from it, and the least height of the gap.
const TRACK_FIRST = 12
const TRACK_GAP = 8
const ROW_GAP = 28
const CORRIDOR = 11

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0)
const key = (path) => path.join(".")

// `cells`: {id, round, layer, order, height, stack}. `links`: {from, to}, of cells. `bands`: {path}. `room`: {width,
// height}. Returns the cells with x, y (their middle) and width, the links with `path`, the bands with their bounds, the
// bounds of all, and whether it fits.
export function arrange({ cells, links, bands = [] }, size, room, { wraps = false } = {}) {
  const roomy = lay({ cells, links, bands }, size, room, wraps, size.gap)
  return roomy.height <= room.height ? roomy : lay({ cells, links, bands }, size, room, wraps, size.leastGap)
}

function lay({ cells, links, bands }, size, room, wraps, gap) {
  const layers = Math.max(0, ...cells.map(({ layer }) => layer + 1))
  const columns = columnsFor(cells, layers, size, room, wraps)
  const at = new Map(cells.map((cell) => [cell.id, { ...cell, ...columns.of(cell.layer), y: 0 }]))
  const lanes = new Map()
  const rows = wraps
    ? rowsOf([...at.values()], columns.perRow)
    : [[...at.values()].filter(({ round }) => !round.length)]
  const tracks = tracksOf(rows, at, links)
  let bottom = 0
  let top = 0
  rows.forEach((row, number) => {
    const block = layBlock(row, links, size, gap, lanes)
    const shift = number === 0 ? 0 : bottom + gapBelow(tracks, number - 1) - block.top
    move(block, shift)
    if (number === 0) top = block.top
    bottom = block.bottom
    row.forEach((cell) => Object.assign(cell, { row: number }))
    if (tracks[number]) tracks[number].y = bottom + TRACK_FIRST
  })
  const placedBands = bands.map(({ path }) => {
    const block = layBlock(
      [...at.values()].filter(({ round }) => key(round) === key(path)),
      links,
      size,
      gap,
      lanes,
    )
    const bandTop = bottom + BAND_GAP
    move(block, bandTop + BAND_TITLE - block.top)
    bottom = block.bottom + size.lane
    const inside = block.cells.length ? block.cells : [columns.of(0)]
    const left = Math.min(...inside.map(({ x, width }) => x - width / 2)) - BAND_PADDING
    const right = Math.max(...inside.map(({ x, width }) => x + width / 2)) + BAND_PADDING
    return { path, top: bandTop, bottom, left, right }
  })
  const placed = [...at.values()]
  const left = Math.min(0, ...placed.map(({ x, width }) => x - width / 2))
  const right = Math.max(0, ...placed.map(({ x, width }) => x + width / 2))
  const drawn = { width: right - left, height: bottom - top }
  return {
    size,
    cells: placed,
    edges: coursesOf(links, at, lanes, tracks, left),
    bands: placedBands,
    left,
    right,
    top,
    bottom,
    ...drawn,
    fits: drawn.width <= room.width + 0.5 && drawn.height <= room.height + 0.5,
  }
}

// The width of each column and where its middle is. What room there is goes between the columns up to the usual, then to
// the cards, then between them again.
function columnsFor(cells, layers, size, room, wraps) {
  const [least, usual, most] = size.apart
  const stacked = new Set(wraps ? [] : cells.filter(({ stack }) => stack).map(({ layer }) => layer))
  const narrow = stacked.size ? Math.min(size.width, BESIDE_STACK) : size.width
  const perRow = wraps ? Math.max(1, Math.floor((room.width + least) / (size.width + least))) : layers
  const shown = Math.min(layers, perRow)
  const gaps = Math.max(1, shown - 1)
  const widths = Array.from({ length: layers }, (_, layer) => (stacked.has(layer) ? STACK.width : narrow))
  const wishes = widths.map((width, layer) => (stacked.has(layer) ? STACK.widest : size.widest) - width)
  const broad = room.width - (wraps ? CORRIDOR : 0) // lines run beside the rows
  let spare = Math.max(0, broad - sum(widths.slice(0, shown)) - (shown - 1) * least)
  const between = Math.min(spare, gaps * (usual - least))
  spare -= between
  const wish = sum(wishes.slice(0, shown))
  const share = wish ? Math.min(1, spare / wish) : 0
  const apart = least + Math.min(most - least, (between + spare - share * wish) / gaps)
  const middles = []
  const grown = widths.map((width, layer) => width + wishes[layer] * share)
  let edge = 0
  grown.forEach((width, layer) => {
    if (wraps && layer % perRow === 0) edge = 0
    middles.push(edge + width / 2)
    edge += width + apart
  })
  return { perRow, of: (layer) => ({ x: middles[layer] ?? 0, width: grown[layer] ?? size.width }) }
}

function rowsOf(cells, perRow) {
  const rows = []
  for (const cell of cells) (rows[Math.floor(cell.layer / perRow)] ??= []).push(cell)
  return rows
}

// Puts the cells of one round or row around height 0, with the lanes of its edges.
function layBlock(cells, links, size, gap, lanes) {
  const columns = new Map()
  for (const cell of cells) columns.set(cell.layer, [...(columns.get(cell.layer) ?? []), cell])
  for (const column of columns.values()) {
    column.sort((a, b) => a.order - b.order)
    let y = -(sum(column.map(({ height }) => height)) + gap * (column.length - 1)) / 2
    for (const cell of column) {
      cell.y = y + cell.height / 2
      y += cell.height + gap
    }
  }
  const own = lanesOf(cells, links, columns, size)
  for (const [source, lane] of own) lanes.set(source, lane)
  const ys = [...own.values()].map(({ y }) => y)
  const top = Math.min(-size.height / 2, ...cells.map(({ y, height }) => y - height / 2), ...ys)
  const bottom = Math.max(size.height / 2, ...cells.map(({ y, height }) => y + height / 2), ...ys)
  return { cells, lanes: own, top, bottom }
}

function move(block, by) {
  for (const each of [...block.cells, ...block.lanes.values()]) each.y += by
  block.top += by
  block.bottom += by
}

// Gives a lane to each cell that is read across a layer. Sides alternate, and lanes that overlap lie apart.
function lanesOf(cells, links, columns, size) {
  const inside = new Map(cells.map((cell) => [cell.id, cell]))
  const furthest = new Map()
  for (const { from, to } of links) {
    const [source, target] = [inside.get(from), inside.get(to)]
    if (!source || !target || target.layer <= source.layer + 1) continue
    furthest.set(from, Math.max(furthest.get(from) ?? 0, target.layer))
  }
  const lanes = new Map()
  let above = true
  const reach = (id) => furthest.get(id) - inside.get(id).layer
  // The longest lane comes last, hence outermost, so that lanes of one side do not cross.
  const sources = [...furthest.keys()].toSorted(
    (a, b) => reach(a) - reach(b) || inside.get(a).order - inside.get(b).order,
  )
  for (const id of sources) {
    const source = inside.get(id)
    if (source.y) above = source.y < 0
    const [first, last] = [source.layer + 1, furthest.get(id) - 1]
    lanes.set(id, { first, last, y: freeHeight(first, last, above ? -1 : 1, columns, lanes, size) })
    above = !above
  }
  return lanes
}

function freeHeight(first, last, sign, columns, lanes, size) {
  let distance = size.clear
  for (let layer = first; layer <= last; layer += 1) {
    for (const { y, height } of columns.get(layer) ?? [])
      distance = Math.max(distance, sign * y + height / 2 + size.clear)
  }
  for (const lane of lanes.values()) {
    const overlaps = lane.first <= last && first <= lane.last
    if (overlaps && sign * lane.y > 0) distance = Math.max(distance, sign * lane.y + size.lane)
  }
  return sign * distance
}

// Each gap between two rows has a track for each cell whose edges run through it.
function tracksOf(rows, at, links) {
  const rowOf = new Map(rows.flatMap((row, number) => row.map(({ id }) => [id, number])))
  const tracks = rows.slice(1).map(() => ({ of: new Map(), y: 0 }))
  const take = (gap, id) => {
    const { of } = tracks[gap]
    if (!of.has(id)) of.set(id, of.size)
  }
  for (const { from, to } of links) {
    const [a, b] = [rowOf.get(from), rowOf.get(to)]
    if (a === undefined || b === undefined || b <= a) continue
    take(a, from)
    take(b - 1, from)
  }
  return tracks
}

const gapBelow = (tracks, row) => Math.max(ROW_GAP, 2 * TRACK_FIRST + (tracks[row].of.size - 1) * TRACK_GAP)

// Returns the links, each with its course.
function coursesOf(links, at, lanes, tracks, leftmost) {
  const known = links.filter(({ from, to }) => at.has(from) && at.has(to))
  const rowed = ({ from, to }) => (at.get(to).row ?? 0) > (at.get(from).row ?? 0)
  const laned = ({ from, to }) => !rowed({ from, to }) && at.get(to).layer > at.get(from).layer + 1
  // An edge to another row leaves below all others and arrives above them.
  const leaving = (link) => (rowed(link) ? Infinity : laned(link) ? lanes.get(link.from).y : at.get(link.to).y)
  const arriving = (link) => (rowed(link) ? -Infinity : laned(link) ? lanes.get(link.from).y : at.get(link.from).y)
  const startY = new Map()
  const endY = new Map()
  for (const cell of at.values()) {
    const out = known.filter(({ from }) => from === cell.id)
    const heights = [...new Set(out.map(leaving))].toSorted((a, b) => a - b)
    // All edges of one lane leave as one line.
    const ports = portsOf(heights.length, cell.height)
    for (const link of out) startY.set(link, cell.y + ports[heights.indexOf(leaving(link))])
    const into = known.filter(({ to }) => to === cell.id).toSorted((a, b) => arriving(a) - arriving(b))
    portsOf(into.length, cell.height).forEach((port, place) => endY.set(into[place], cell.y + port))
  }
  return known.map((link) => {
    const [from, to] = [at.get(link.from), at.get(link.to)]
    const start = { x: from.x + from.width / 2, y: startY.get(link) }
    const end = { x: to.x - to.width / 2 - 2, y: endY.get(link) }
    const tip = { x: end.x - ARROW + 1, y: end.y }
    if (rowed(link))
      return { ...link, path: { start, ...throughGap(link, from, to, start, tip, tracks, leftmost), tip, end } }
    if (!laned(link)) return { ...link, path: { start, enter: null, bend: start, tip, end } }
    const { y, first } = lanes.get(link.from)
    const passed = [...at.values()].filter(({ round }) => key(round) === key(from.round))
    const near = passed.filter(({ layer }) => layer === first)
    const far = passed.filter(({ layer }) => layer === to.layer - 1)
    const enter = { x: Math.min(...near.map(({ x, width }) => x - width / 2)), y }
    const bend = { x: Math.max(...far.map(({ x, width }) => x + width / 2)), y }
    return { ...link, path: { start, enter, bend, tip, end } }
  })
}

// Returns the corners of a line from one row to a later one.
function throughGap({ from: id }, from, to, start, tip, tracks, leftmost) {
  const lineOf = (gap) => tracks[gap].y + tracks[gap].of.get(id) * TRACK_GAP
  const place = tracks[from.row].of.get(id)
  const out = start.x + Math.min(8 + 3 * place, CORRIDOR + 1)
  const into = to.x - to.width / 2 - CORRIDOR
  const first = lineOf(from.row)
  const last = lineOf(to.row - 1)
  const aside = leftmost - CORRIDOR
  const around =
    to.row > from.row + 1
      ? [
          { x: aside, y: first },
          { x: aside, y: last },
        ]
      : []
  const course = [
    start,
    { x: out, y: start.y },
    { x: out, y: first },
    ...around,
    { x: into, y: last },
    { x: into, y: tip.y },
  ]
  return { enter: null, bend: course.at(-1), course }
}

// Returns heights on a card's side for `count` edges, spread around its middle; of very many, one for all.
function portsOf(count, height) {
  const fair = Math.min(PORT_GAP, (height - 22) / Math.max(count - 1, 1))
  const gap = fair < LEAST_PORT_GAP ? 0 : fair
  return Array.from({ length: count }, (_, place) => (place - (count - 1) / 2) * gap)
}
