// Images that are pasted on the Run page, or dropped anywhere on the card of the task, go into the field for images.

const IMAGE = /^image\//

const fieldOf = () => document.querySelector(".st-key-task-image-field input[type=file]")

const imagesIn = (data) => [...(data?.files ?? [])].filter((file) => IMAGE.test(file.type))

// Gives the files to Streamlit's field as if they were chosen there. Of one that is no image the page says so.
function give(files) {
  const field = fieldOf()
  if (!field || !files.length) return false
  const chosen = new DataTransfer()
  for (const file of files) chosen.items.add(file)
  field.files = chosen.files
  field.dispatchEvent(new Event("change", { bubbles: true }))
  return true
}

// Streamlit can lose a field's request: a drawing of the page that begins at that moment clears its answer away. Then
// the field shows no file and nothing comes, so it is given its files again. An image that comes twice is kept once.
const AGAIN_MS = 1500
const MOST_TRIES = 5

const isLost = (field, files) =>
  field.isConnected &&
  field.files === files &&
  !field.closest("[data-testid=stFileUploader]")?.querySelector("[data-testid=stFileChip]")

function watch(field, files, tries) {
  setTimeout(() => {
    if (!isLost(field, files)) return
    const again = new CustomEvent("change", { bubbles: true, detail: "again" })
    field.dispatchEvent(again)
    if (tries < MOST_TRIES) watch(field, files, tries + 1)
  }, AGAIN_MS)
}

document.addEventListener("change", (event) => {
  if (event.target !== fieldOf() || event.detail === "again" || !event.target.files.length) return
  watch(event.target, event.target.files, 1)
})

const isOverCard = (event) => event.target instanceof Element && event.target.closest(".st-key-task-box") !== null

const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files")

function mark(on) {
  document.querySelector(".st-key-task-box")?.toggleAttribute("data-dropping", on)
}

// Streamlit's own field takes what is dropped right on it.
const isOverField = (event) => event.target.closest("[data-testid=stFileUploaderDropzone]") !== null

document.addEventListener("paste", (event) => {
  // Text beside an image, as spreadsheets give it, is what a person means when they paste into a field.
  if (event.clipboardData?.getData("text/plain")) return
  if (give(imagesIn(event.clipboardData))) event.preventDefault()
})
document.addEventListener("dragover", (event) => {
  const over = carriesFiles(event) && isOverCard(event)
  mark(over)
  if (over) event.preventDefault()
})
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) mark(false)
})
document.addEventListener("drop", (event) => {
  mark(false)
  if (!carriesFiles(event) || !isOverCard(event) || isOverField(event)) return
  // A browser would leave the page and open the file.
  event.preventDefault()
  give([...event.dataTransfer.files])
})
