// The ScriptEditorProvider of a call (AT-81), on a native host that no script can
// reach. As the prelude it keeps its own references to what scripts may replace.
(function (host) {
  "use strict";
  const { defineProperty, freeze, create } = Object;
  const { parse, stringify } = JSON;
  const NativePromise = Promise, NativeError = Error, NativeTypeError = TypeError, { DOMException } = host;

  const word = (v, what) => {
    if (typeof v !== "string") throw new NativeTypeError(what + " must be a string");
    return v;
  };
  // What a synchronous question came to.
  const sync = (answer) => {
    const a = parse(answer);
    if (a.error !== undefined) throw a.abort ? new DOMException(a.error, "AbortError") : new NativeError(a.error);
    return a.value;
  };
  const later = (op, path, more) => new NativePromise((resolve, reject) => {
    host.start(op, word(path, "a path"), more(),
      (answer) => { resolve(parse(answer)); },
      (kind, message) => { reject(kind === "abort" ? new DOMException(message, "AbortError") : kind === "type" ? new NativeTypeError(message) : new NativeError(message)); });
  });
  const content = (v) => () => word(v, "the content");
  const edits = (v) => () => {
    let t;
    try { t = stringify(v); } catch (_) { t = undefined; }
    if (t === undefined) throw new NativeTypeError("the operations must be an array");
    return t;
  };

  const editor = create(null);
  const put = (name, value) => defineProperty(editor, name, { value, enumerable: true });
  put("scriptName", host.name);
  put("canWrite", host.write); // Belay's own: a tool need not ask a person for what cannot be done
  put("exists", (path) => host.exists(word(path, "a path")));
  put("getAllFolders", () => sync(host.list(true)));
  put("getAllFiles", () => sync(host.list(false)));
  put("getFileContent", (path) => later("read", path, () => ""));
  put("updateFileContent", (path, text) => later("update", path, content(text)));
  put("writeToFile", (path, text) => later("write", path, content(text)));
  put("insertContent", (path, operations) => later("insert", path, edits(operations)));
  put("replaceInFile", (path, operations) => later("replace", path, edits(operations)));
  put("openDiffEditor", (path, text) => { host.diff(word(path, "a path"), word(text, "the content")); });
  put("getLintErrors", () => sync(host.lint()));
  return freeze(editor);
})
