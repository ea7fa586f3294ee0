// Builds DOM by hand. Text always goes in as text, never as markup.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  setAttributes(element, attributes)
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else if (value === null || value === undefined || value === false) element.removeAttribute(name)
    else element.setAttribute(name, value === true ? "" : value)
  }
}

// Writes only what changed, so that selections stay and screen readers do not repeat text.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

// Makes a link to another page, which Streamlit opens as at the browser's Forward: without loading it anew, and with one
// entry in the history. A page that the server switches to leaves a second one, of this page with that one's parameters.
export function pageLink(words) {
  const onclick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return
    event.preventDefault()
    history.pushState(null, "", event.currentTarget.href)
    dispatchEvent(new PopStateEvent("popstate"))
  }
  return el("a", { class: "quiet", target: "_self", onclick }, words)
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name
}

// Rebuilds a part only when what it shows has changed.
export function once(element, state, build) {
  if (element.shownState === state) return
  element.shownState = state
  element.replaceChildren(...build())
}

export function copyButton(label, read) {
  const button = el("button", { type: "button", class: "quiet copy", "aria-label": label, title: label }, "Copy")
  button.addEventListener("click", async (event) => {
    event.stopPropagation()
    const copied = await copyText(read(), button)
    button.textContent = copied ? "Copied" : "Not copied"
    setTimeout(() => (button.textContent = "Copy"), 1500)
  })
  return button
}

// Makes a button that opens a whole text over the page; `read` returns the arguments of `Reader.open`.
export function readButton(label, read) {
  const button = el("button", { type: "button", class: "quiet read", "aria-label": label, title: label }, "Show all")
  button.addEventListener("click", (event) => {
    event.stopPropagation()
    read()
  })
  return button
}

// Copies a text, at the press of the button `beside`. Says whether the browser let it.
export async function copyText(text, beside) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyByCommand(text, beside) // outside https and localhost there is no other way
  }
}

// The field stands beside the button: what is outside an open dialog cannot be selected.
function copyByCommand(text, beside) {
  const field = el("textarea", { readonly: true, "aria-hidden": "true", style: "position: fixed; opacity: 0" })
  const give = (event) => {
    event.clipboardData.setData("text/plain", text)
    event.preventDefault()
    event.stopImmediatePropagation()
  }
  field.value = text
  beside.after(field)
  field.select()
  document.addEventListener("copy", give, { capture: true, once: true })
  try {
    return document.execCommand("copy")
  } catch {
    return false
  } finally {
    document.removeEventListener("copy", give, { capture: true })
    field.remove()
    beside.focus({ preventScroll: true })
  }
}
