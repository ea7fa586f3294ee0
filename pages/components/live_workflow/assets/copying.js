// Copies a model's text as it was written: whole blocks as the model wrote them, formulas as their source.

const written = new WeakMap() // a block's element: the whole text, where in it the block stands, and what is alone its code

export function remember(element, text, start, end, code = null) {
  written.set(element, { text, start, end, code })
}

// Handles copies from the shadow tree `root`.
export function copyAsWritten(root) {
  root.addEventListener("copy", (event) => {
    const range = selected(root)
    const text = range && asWritten(range, root)
    if (text === null || text === undefined) return
    event.clipboardData.setData("text/plain", text)
    event.preventDefault()
  })
}

function selected(root) {
  const selection = root.getSelection ? root.getSelection() : document.getSelection()
  if (selection.rangeCount && root.contains(selection.getRangeAt(0).commonAncestorContainer))
    return selection.getRangeAt(0)
  const [composed] = selection.getComposedRanges?.({ shadowRoots: [root] }) ?? []
  if (!composed || !root.contains(composed.startContainer)) return null
  const range = document.createRange()
  range.setStart(composed.startContainer, composed.startOffset)
  range.setEnd(composed.endContainer, composed.endOffset)
  return range
}

// Returns the text to copy; null leaves the copy to the browser.
function asWritten(range, root) {
  if (range.collapsed) return null
  const formula = inOneFormula(range)
  if (formula) return formula.dataset.source
  range = wholeFormulas(range.cloneRange())
  const blocks = [...proseOf(range)].filter((block) => written.has(block) && range.intersectsNode(block))
  const whole = blocks.filter((block) => covers(range, block))
  if (!whole.length) return range.cloneContents().querySelector?.(".formula") ? shown(range, root) : null
  const [first, last] = [whole[0], whole.at(-1)]
  const [from, to] = [written.get(first), written.get(last)]
  // A copy of one code block alone gives the code without its fence.
  if (blocks.length === 1 && from.code !== null) return from.code
  const parts = [to.text.slice(from.start, to.end)]
  if (blocks[0] !== first) parts.unshift(shown(between(range, null, first), root))
  if (blocks.at(-1) !== last) parts.push(shown(between(range, last, null), root))
  return parts.filter(Boolean).join("\n\n")
}

const formulaOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(".formula")

function inOneFormula(range) {
  const formula = formulaOf(range.startContainer)
  return formula && formula === formulaOf(range.endContainer) ? formula : null
}

// Widens the range, so that it holds each formula whole.
function wholeFormulas(range) {
  const [first, last] = [formulaOf(range.startContainer), formulaOf(range.endContainer)]
  if (first) range.setStartBefore(first)
  if (last) range.setEndAfter(last)
  return range
}

// Returns all blocks of the one text that holds the range. A selection over several texts is left to the browser.
function proseOf(range) {
  const node = range.commonAncestorContainer
  const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement
  return element?.closest(".prose")?.querySelectorAll("*") ?? []
}

function covers(range, block) {
  const inside = document.createRange()
  inside.selectNodeContents(block)
  const rest = document.createRange()
  const blank = (from, fromOffset, to, toOffset) => {
    rest.setStart(from, fromOffset)
    rest.setEnd(to, toOffset)
    return rest.toString().trim() === ""
  }
  const { startContainer, startOffset, endContainer, endOffset } = range
  const starts =
    range.compareBoundaryPoints(Range.START_TO_START, inside) <= 0 ||
    blank(inside.startContainer, inside.startOffset, startContainer, startOffset)
  return (
    starts &&
    (range.compareBoundaryPoints(Range.END_TO_END, inside) >= 0 ||
      blank(endContainer, endOffset, inside.endContainer, inside.endOffset))
  )
}

function between(range, after, before) {
  const part = range.cloneRange()
  if (after) part.setStartAfter(after)
  if (before) part.setEndBefore(before)
  return part
}

// Returns the text as the browser would copy it, with each formula's source in its place.
function shown(range, root) {
  const holder = document.createElement("div")
  holder.className = "copied prose"
  holder.append(range.cloneContents())
  for (const formula of holder.querySelectorAll(".formula")) {
    formula.className = "formula source"
    formula.textContent = formula.dataset.source
  }
  root.append(holder)
  const text = holder.innerText
  holder.remove()
  return text.trim()
}
