// The files that a task has made: pictures are shown, and any can be downloaded by way of the host.

const PICTURE = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml)$/; // in an <img> none of them can do anything
const MOST_PICTURES = 6;
const LARGEST_PICTURE = 2_000_000;
const LARGEST_FILE = 16_000_000; // what is larger is for a link

const known = new Map(); // by artifact id: its element

/** All of a file, in base64, piece by piece. The pieces are whole threes of bytes, so that their texts can be joined. */
async function contents(taskId, artifactId) {
  const pieces = [];
  for (let offset = 0; offset !== null; ) {
    const piece = await callTool("backburner_card_file", { task_id: taskId, artifact_id: artifactId, offset });
    pieces.push(piece.data);
    offset = piece.next_offset;
  }
  return pieces.join("");
}

/** How the host gets a file to its user; null where there is no way. */
function wayOf(file) {
  const linked = file.url && (() => request("ui/open-link", { url: file.url }));
  if (!can.downloadFile) return can.openLinks ? linked : null;
  if (file.size > LARGEST_FILE) {
    const link = { type: "resource_link", uri: file.url, name: file.name, mimeType: file.type };
    return file.url && (() => request("ui/download-file", { contents: [link] }, 600000));
  }
  return async (taskId) => {
    const name = file.name.split(/[\\/]/).pop();
    const resource = { uri: `file:///${encodeURIComponent(name)}`, mimeType: file.type, blob: await contents(taskId, file.artifact_id) };
    return request("ui/download-file", { contents: [{ type: "resource", resource }] }, 600000);
  };
}

function fileElement(taskId, file, asPicture) {
  const line = element(asPicture ? "figcaption" : "div", "", { class: "file" });
  const name = element("bdi", inLine(file.name), { class: "name", title: inLine(file.name) });
  line.append(name, element("span", bytes(file.size), { class: "size" }));
  const way = wayOf(file);
  if (way) {
    const button = element("button", "Download", { type: "button", "aria-label": `Download ${inLine(file.name)}` });
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const result = await way(taskId);
        button.textContent = result.isError ? "Refused" : "Download";
      } catch (error) {
        button.textContent = "Failed";
        button.title = inLine(error.message);
      }
      button.disabled = false;
    });
    line.append(button);
  }
  if (!asPicture) return line;
  const figure = element("figure");
  const image = element("img", "", { alt: inLine(file.name) });
  figure.append(image, line);
  contents(taskId, file.artifact_id).then(
    (data) => { image.src = `data:${file.type};base64,${data}`; },
    () => image.remove(),
  );
  return figure;
}

function showFiles(place, taskId, { count, shown }) {
  let pictures = place.querySelector(".pictures");
  for (const file of shown) {
    if (known.has(file.artifact_id)) continue;
    const asPicture = PICTURE.test(file.type) && file.size <= LARGEST_PICTURE && (pictures?.childElementCount || 0) < MOST_PICTURES;
    const made = fileElement(taskId, file, asPicture);
    known.set(file.artifact_id, made);
    if (asPicture) {
      if (!pictures) place.prepend((pictures = element("div", "", { class: "pictures" })));
      pictures.append(made);
    } else place.append(made);
  }
  place.hidden = known.size === 0;
  if (count > known.size && !place.querySelector(".more")) {
    place.append(element("small", `and ${number(count - known.size)} before these`, { class: "more" }));
  }
}
