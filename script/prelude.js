// What every virtual machine gets before the script: the AssistantTool global, the
// host module behind `import … from "scripting"`, console and timers. It is one
// function of the native host, which no script can reach, and returns what the
// host calls. It keeps its own references to what scripts may replace later.
(function (host) {
  "use strict";
  const { stringify, parse } = JSON;
  const { apply, ownKeys } = Reflect;
  const { create, defineProperty, freeze } = Object;
  const NativeMap = Map, nameOf = Map.prototype.get;
  const NativePromise = Promise, then = Promise.prototype.then;
  const NativeTypeError = TypeError, NativeRangeError = RangeError, NativeError = Error;
  const text = String, isArray = Array.isArray;

  const hidden = (target, name, value) =>
    defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
  const fixed = (target, name, value) =>
    defineProperty(target, name, { value, writable: false, configurable: false, enumerable: true });

  // What an error says, and never its stack. Everything about it may be a trap.
  const describe = (e) => {
    try {
      if (e !== null && typeof e === "object") {
        const m = e.message;
        if (typeof m === "string" && m !== "") return m;
      }
      return text(e);
    } catch (_) {
      return "the tool threw something that cannot be shown";
    }
  };
  // A value as JSON, or undefined when it has none.
  const json = (v) => {
    try { return stringify(v); } catch (_) { return undefined; }
  };

  // Calls fn and tells the host once how that ended. A promise is waited for by
  // the then of before the script, whatever the script has made of it since.
  const settle = (fn, args, done, failed) => {
    const bad = (e) => { failed(describe(e)); };
    let v;
    try { v = apply(fn, undefined, args); } catch (e) { bad(e); return; }
    try { apply(then, v, [done, bad]); return; } catch (_) { /* no promise of this machine */ }
    apply(then, new NativePromise((resolve) => { resolve(v); }), [done, bad]);
  };

  // --- AssistantTool -------------------------------------------------------------
  let executing = false, onCancel = null;
  const registered = create(null);
  const unregistered = "the script does not register its tool";
  const register = (kind) => (fn) => {
    if (typeof fn !== "function") throw new NativeTypeError("AssistantTool." + kind + " takes a function");
    if (registered[kind]) host.log("warn", "AssistantTool." + kind + " was called again: the last one counts");
    registered[kind] = fn;
    return (...args) => { host.test(kind, json(args) || "[]"); };
  };
  const state = (name) => {
    if (typeof name !== "string") throw new NativeTypeError("a key of the state is a string");
    return name;
  };
  const AssistantTool = create(null);
  for (const kind of ["registerExecuteTool", "registerApprovalRequest", "registerExecuteToolWithApproval", "registerUIView"])
    fixed(AssistantTool, kind, register(kind));
  defineProperty(AssistantTool, "isCancelled", { enumerable: true, configurable: false, get: () => host.cancelled() });
  defineProperty(AssistantTool, "onCancel", {
    enumerable: true, configurable: false,
    get: () => onCancel,
    set: (fn) => {
      if (fn !== null && fn !== undefined && typeof fn !== "function")
        throw new NativeTypeError("AssistantTool.onCancel takes a function, null or undefined");
      if (executing && (!fn || !host.cancelled())) onCancel = fn || null;
    },
  });
  fixed(AssistantTool, "report", (message, id) => { host.report(text(message), id === undefined || id === null ? "" : text(id)); });
  fixed(AssistantTool, "getState", (key) => {
    const v = host.getState(state(key));
    return v === undefined ? null : parse(v);
  });
  fixed(AssistantTool, "setState", (key, value) => {
    let v;
    try { v = stringify(value); } catch (_) { v = undefined; }
    if (v === undefined) throw new NativeTypeError("the state takes JSON values only");
    if (!host.setState(state(key), v)) throw new NativeRangeError("the state is full: 64 keys and 256 KiB");
  });
  fixed(AssistantTool, "removeState", (key) => { host.removeState(state(key)); });
  fixed(AssistantTool, "clearState", () => { host.clearState(); });
  Object.preventExtensions(AssistantTool);
  defineProperty(globalThis, "AssistantTool", { value: AssistantTool, writable: false, configurable: false, enumerable: false });

  // --- console and timers ----------------------------------------------------------
  const show = (v) => {
    if (typeof v === "string") return v;
    if (v instanceof NativeError) return describe(v);
    const j = typeof v === "object" && v !== null ? json(v) : undefined;
    try { return j === undefined ? text(v) : j; } catch (_) { return "[unprintable]"; }
  };
  const line = (level) => (...args) => {
    let out = "";
    for (let i = 0; i < args.length; i++) out += (i ? " " : "") + show(args[i]);
    host.log(level, out);
  };
  hidden(globalThis, "console", freeze({
    log: line("info"), info: line("info"), debug: line("debug"), warn: line("warn"), error: line("error"),
    clear: () => {}, present: () => NativePromise.resolve(),
  }));
  const timer = (every) => (fn, ms, ...args) => {
    if (typeof fn !== "function") throw new NativeTypeError("a timer takes a function");
    ms = +ms;
    const id = host.timer(() => { apply(fn, undefined, args); }, ms >= 1 ? ms : 0, every);
    if (id < 0) throw new NativeRangeError("too many timers are open");
    return id;
  };
  hidden(globalThis, "setTimeout", timer(false));
  hidden(globalThis, "setInterval", timer(true));
  hidden(globalThis, "clearTimeout", (id) => { host.clear(+id || 0); });
  hidden(globalThis, "clearInterval", (id) => { host.clear(+id || 0); });
  hidden(globalThis, "queueMicrotask", (fn) => {
    if (typeof fn !== "function") throw new NativeTypeError("queueMicrotask takes a function");
    apply(then, NativePromise.resolve(), [() => { fn(); }]);
  });

  // --- the host module -----------------------------------------------------------
  const Script = create(null);
  fixed(Script, "env", "assistant_tool");
  fixed(Script, "name", host.name);
  fixed(Script, "metadata", freeze(parse(host.metadata)));
  fixed(Script, "queryParameters", freeze({}));
  fixed(Script, "directory", "/scripts/" + host.id); // leads nowhere: scripts make paths of it before they need one
  fixed(Script, "onResume", () => () => {});
  fixed(Script, "exit", (result) => { host.exit(json(result)); });
  freeze(Script);
  hidden(globalThis, "Script", Script);

  // Elements are kept and never rendered.
  const Fragment = freeze({ fragment: true });
  const h = (type, props, ...children) => ({ type, props: props || {}, children });
  hidden(globalThis, "createElement", h);
  hidden(globalThis, "Fragment", Fragment);
  const createContext = () => freeze({ Provider: (props) => props && props.children, Consumer: () => null });

  // Names of files, as texts: there are no files.
  const slash = (p) => {
    if (typeof p !== "string") throw new NativeTypeError("a path is a string");
    return p;
  };
  const normalize = (p) => {
    const kept = [], rooted = slash(p).startsWith("/");
    for (const part of p.split("/")) {
      if (part === "" || part === ".") continue;
      if (part !== "..") kept.push(part);
      else if (kept.length && kept[kept.length - 1] !== "..") kept.pop();
      else if (!rooted) kept.push(part);
    }
    return (rooted ? "/" : "") + kept.join("/") + (kept.length && p.endsWith("/") ? "/" : "") || ".";
  };
  const last = (p) => slash(p).replace(/\/+$/, "").split("/").pop();
  const extname = (p) => {
    const name = last(p), at = name.lastIndexOf(".");
    return at > 0 && name !== ".." ? name.slice(at) : "";
  };
  const dirname = (p) => {
    const cut = slash(p).replace(/\/+$/, ""), at = cut.lastIndexOf("/");
    return at > 0 ? cut.slice(0, at) : at === 0 || cut === "" && p !== "" ? "/" : ".";
  };
  const basename = (p, ext) => {
    const name = last(p);
    return typeof ext === "string" && ext !== "" && name !== ext && name.endsWith(ext) ? name.slice(0, -ext.length) : name;
  };
  const Path = freeze({
    normalize, extname, dirname, basename,
    join: (...parts) => normalize(parts.map(slash).filter((p) => p !== "").join("/")),
    isAbsolute: (p) => slash(p).startsWith("/"),
    parse: (p) => {
      const base = last(p), ext = extname(p);
      return { root: p.startsWith("/") ? "/" : "", dir: base === p ? "" : dirname(p), base, ext, name: ext ? base.slice(0, -ext.length) : base };
    },
  });
  hidden(globalThis, "Path", Path);

  const __scripting = create(null);
  Object.assign(__scripting, host.web, { Script, AssistantTool, h, Fragment, createElement: h, createContext, Path });
  for (const name of ["console", "setTimeout", "clearTimeout", "setInterval", "clearInterval", "queueMicrotask"]) __scripting[name] = globalThis[name];

  class NotAvailableError extends NativeError {}
  hidden(NotAvailableError.prototype, "name", "NotAvailableError");
  // One handler for all of them: a machine is made for each call, and this is what most
  // of its memory would go to.
  const names = new NativeMap();
  const refuse = (gone, what) => { throw new NotAvailableError(apply(nameOf, names, [gone]) + (what ? "." + what : "") + " is not available in Belay"); };
  const handler = freeze({
    get: (gone, key) => key === "isAvailable" ? false : typeof key === "symbol" ? undefined : refuse(gone, key),
    set: (gone, key) => refuse(gone, text(key)), apply: (gone) => refuse(gone, ""), construct: (gone) => refuse(gone, ""),
    deleteProperty: (gone, key) => refuse(gone, text(key)), defineProperty: (gone, key) => refuse(gone, text(key)),
  });
  for (const name of host.missing) {
    const target = function () {};
    names.set(target, name);
    const gone = new Proxy(target, handler);
    hidden(globalThis, name, gone);
    __scripting[name] = gone;
  }
  defineProperty(globalThis, "__scripting", { value: __scripting, writable: false, configurable: false, enumerable: false });

  // --- RegExp -------------------------------------------------------------------------
  // The interpreter takes \p{…} for the letters that it is written with. The host has
  // spelled it out in literals, and does so for what is put together at run time.
  const NativeRegExp = RegExp, NativeSyntaxError = SyntaxError, { construct } = Reflect;
  const { indexOf } = String.prototype;
  const has = (s, part) => apply(indexOf, s, [part]) >= 0;
  const spelled = (args) => {
    const pattern = args[0], flags = args[1];
    if (typeof pattern !== "string" || typeof flags !== "string" || !has(flags, "u") || !has(pattern, "\\p{") && !has(pattern, "\\P{")) return args;
    const { text, mistake } = host.pattern(pattern);
    if (mistake) throw new NativeSyntaxError("Invalid regular expression: " + mistake);
    return [text, flags];
  };
  const SpelledRegExp = { RegExp: function (pattern, flags) {
    const args = spelled([pattern, flags]);
    if (new.target) return construct(NativeRegExp, args, new.target === SpelledRegExp ? NativeRegExp : new.target);
    // Without new, one that is there already is returned as it is.
    return flags === undefined && pattern instanceof NativeRegExp && pattern.constructor === SpelledRegExp ? pattern : construct(NativeRegExp, args);
  } }.RegExp;
  defineProperty(SpelledRegExp, "prototype", { value: NativeRegExp.prototype, writable: false });
  defineProperty(SpelledRegExp, Symbol.species, { configurable: true, get() { return this; } });
  hidden(globalThis, "RegExp", SpelledRegExp);
  hidden(NativeRegExp.prototype, "constructor", SpelledRegExp);

  const withEditor = (args) => { // the last argument, absent outside the editor (AT-81)
    if (host.editor) args.push(host.editor);
    return args;
  };

  // --- what the host calls ---------------------------------------------------------
  return {
    __proto__: null,
    globals: __scripting,
    kinds: () => ownKeys(registered),
    request: (params, done, failed) => {
      if (!registered.registerApprovalRequest) { failed(unregistered); return; }
      settle(registered.registerApprovalRequest, withEditor([parse(params)]), (v) => {
        let preview = null, dialog;
        try {
          const b = v.previewButton;
          const label = b && b.label;
          if (b && typeof b.action === "function") { const { action } = b; preview = (done) => { settle(action, [], () => { done(); }, (e) => { host.log("warn", "the preview failed: " + e); done(); }); }; }
          dialog = stringify({ title: v.title, message: v.message, preview: label, primary: v.primaryButtonLabel, secondary: v.secondaryButtonLabel });
        } catch (_) { dialog = undefined; }
        done(dialog, preview);
      }, failed);
    },
    execute: (params, action, done, failed) => {
      executing = true;
      const args = [parse(params)];
      let fn = registered.registerExecuteTool;
      if (action !== undefined) { fn = registered.registerExecuteToolWithApproval; args.push(freeze(parse(action))); }
      if (!fn) { failed(unregistered); return; }
      settle(fn, withEditor(args), (v) => { done(json(v)); }, failed);
    },
    // The one call of onCancel: what it returned, if that is a string.
    cancel: (store) => {
      const fn = onCancel;
      onCancel = null;
      if (!executing || typeof fn !== "function") return;
      let v;
      try { v = fn(); } catch (e) { host.log("warn", "onCancel failed: " + describe(e)); return; }
      if (typeof v === "string") store(v);
      else if (v !== null && v !== undefined) host.log("warn", "onCancel returned " + (isArray(v) ? "an array" : typeof v) + ", not a string: it is left out");
    },
  };
})
