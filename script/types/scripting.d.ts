// Types of what a script finds in Belay: the global AssistantTool, the module
// "scripting", and the web's globals. Written by "belay tool types"; a newer Belay
// writes it anew, so change nothing here.
//
// What is marked as deprecated exists only so that scripts of the Scripting app load:
// it has no effect here, or throws NotAvailableError when it is used.

// --- the tool ----------------------------------------------------------------------

declare namespace AssistantTool {
  /**
   * Hands back what the tool has so far. The string becomes the message of the
   * cancelled call, which the assistant reads; null and undefined mean no message.
   * It has 250 ms, must not be async, and must not start anything.
   */
  type OnCancel = () => string | null | undefined

  /**
   * Called once, immediately, when somebody stops the call. Set it inside the execute
   * function: anywhere else it has no effect. It is null again after it was called,
   * and when the call has ended.
   */
  let onCancel: OnCancel | null | undefined

  /** True from the moment on in which somebody stops the call. Read it in loops. */
  const isCancelled: boolean

  /** One piece of a result. An image without a mimeType is a PNG. */
  type Part =
    | string
    | { type: "text" | (string & {}); text: string }
    | { type: "image" | (string & {}); base64: string; mimeType?: string }

  /**
   * What an execute function returns: a message, or parts for the assistant and for
   * the user. Of message and output, output counts.
   */
  type Result =
    | { success: boolean; message: string; output?: undefined }
    | { success: boolean; message?: string; output: { assistantParts?: Part[]; userParts?: Part[] } }

  /** A result, or nothing at all after the call was stopped: that is ignored. */
  type Outcome = Result | undefined | void

  /** What the person is asked before a tool with requireApproval works. */
  interface ApprovalRequest {
    /** The manifest's displayName, if left out. */
    title?: string
    message: string
    /** Shows what would happen, before the decision. */
    previewButton?: { label: string; action: () => void | Promise<void> }
    /** Agrees. Without a label there is no such button, and primaryConfirmed is never true. */
    primaryButtonLabel?: string
    /** Declines. Without a label there is no such button, and secondaryConfirmed is never true. */
    secondaryButtonLabel?: string
  }

  /** What the person did. Both are false when the question was closed, or nobody answered. */
  interface UserAction {
    primaryConfirmed: boolean
    secondaryConfirmed: boolean
  }

  /**
   * Registers the execute function of a tool whose manifest says requireApproval: false.
   * The function that it returns calls the tool under "belay tool run --test"; at any
   * other time it does nothing.
   */
  function registerExecuteTool<P = Record<string, unknown>>(
    execute: (params: P, editor?: ScriptEditorProvider) => Outcome | Promise<Outcome>
  ): (params: P) => void

  /**
   * Registers what asks for approval. It must have no effects of its own. Nothing is
   * cancelled here by onCancel: a Stop withdraws the question.
   */
  function registerApprovalRequest<P = Record<string, unknown>>(
    request: (params: P, editor?: ScriptEditorProvider) => ApprovalRequest | Promise<ApprovalRequest>
  ): (params: P) => void

  /**
   * Registers the execute function of a tool whose manifest says requireApproval: true.
   * It is called after every answer, a refusal included: return success: false then.
   */
  function registerExecuteToolWithApproval<P = Record<string, unknown>>(
    execute: (params: P, userAction: UserAction, editor?: ScriptEditorProvider) => Outcome | Promise<Outcome>
  ): (params: P, userAction: UserAction) => void

  /** @deprecated Belay has no screen: a view is kept and never shown. */
  function registerUIView<P = Record<string, unknown>>(
    component: (props: { params: P; response: (result: Result) => void; isAutoApprove: boolean; scriptEditorProvider?: ScriptEditorProvider }) => any
  ): (params: P, options?: { isAutoApprove?: boolean; initialState?: Record<string, unknown>; screenshot?: boolean }) => void

  /** Shows progress. The same id replaces the earlier report. */
  function report(message: string, id?: string): void

  /** The state of this call, which is gone with it; null if there is none. */
  function getState<T = any>(key: string): T | null
  /** JSON values only; 64 keys and 256 KiB at most. */
  function setState(key: string, value: unknown): void
  function removeState(key: string): void
  function clearState(): void
}

/**
 * The folder that the operator lets the tool work on, for tools with scriptEditorOnly.
 * Paths are relative to it, with /; nothing outside of it can be reached. What is
 * missing, no text, or larger than 4 MiB reads as null. Without leave to write, what
 * writes is rejected.
 */
interface ScriptEditorProvider {
  readonly scriptName: string
  /** Belay's own, elsewhere undefined: false where the folder may only be read. */
  readonly canWrite?: boolean
  exists(path: string): boolean
  getAllFolders(): string[]
  getAllFiles(): string[]
  getFileContent(path: string): Promise<string | null>
  updateFileContent(path: string, content: string): Promise<boolean>
  writeToFile(path: string, content: string): Promise<boolean>
  insertContent(path: string, operations: ScriptEditorInsertion[]): Promise<boolean>
  replaceInFile(path: string, operations: ScriptEditorChange[]): Promise<boolean>
  /** Reports what would change. */
  openDiffEditor(path: string, content: string): void
  /** What the compiler says, by file; files without mistakes are left out. */
  getLintErrors(): Record<string, ScriptEditorLintError[]>
}

/** Lines count from 1. */
interface ScriptEditorInsertion {
  startLine: number
  content: string
}

/** A change by lines, or by the text that is there now. */
type ScriptEditorChange =
  | ScriptEditorInsertion
  | { existingBlock: string; newBlock: string; contextBefore?: string; contextAfter?: string; startLineHint?: number }

/** Lines count from 1, everything else from 0. */
interface ScriptEditorLintError {
  line: number
  column: number
  from: number
  to: number
  message: string
}

// --- the script ----------------------------------------------------------------------

interface ScriptMetadata {
  readonly name: string
  readonly version: string
  readonly icon?: string
  readonly color?: string
  readonly description?: string
}

interface ScriptHost {
  readonly env: "assistant_tool"
  readonly name: string
  readonly metadata: ScriptMetadata
  readonly queryParameters: Readonly<Record<string, string>>
  /** Leads nowhere: there are no files. */
  readonly directory: string
  /** The callback is never called here. */
  onResume(callback: (details: any) => void): () => void
  /** Ends the call, with this result. */
  exit(result?: AssistantTool.Result): never
}
declare var Script: ScriptHost

/** Names of files, as texts. */
declare var Path: {
  join(...parts: string[]): string
  normalize(path: string): string
  dirname(path: string): string
  basename(path: string, ext?: string): string
  extname(path: string): string
  isAbsolute(path: string): boolean
  parse(path: string): { root: string; dir: string; base: string; ext: string; name: string }
}

/** Makes an element, which is kept and never shown. */
declare function createElement(type: any, props?: any, ...children: any[]): any
declare var Fragment: any

interface Console {
  log(...values: unknown[]): void
  info(...values: unknown[]): void
  debug(...values: unknown[]): void
  warn(...values: unknown[]): void
  error(...values: unknown[]): void
  clear(): void
  present(): Promise<void>
}
declare var console: Console

declare function setTimeout(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number
declare function clearTimeout(id?: number | null): void
declare function setInterval(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number
declare function clearInterval(id?: number | null): void
declare function queueMicrotask(callback: () => void): void

// --- abort ---------------------------------------------------------------------------

interface DOMException extends Error {
  readonly code: number
}
declare var DOMException: { prototype: DOMException; new (message?: string, name?: string): DOMException }

interface Event {
  readonly type: string
  readonly target: any
  readonly currentTarget: any
}
declare var Event: { prototype: Event }

interface AbortSignal {
  readonly aborted: boolean
  readonly reason: any
  onabort: ((this: AbortSignal, event: Event) => void) | null
  throwIfAborted(): void
  addEventListener(type: "abort", listener: (event: Event) => void, options?: { once?: boolean }): void
  removeEventListener(type: "abort", listener: (event: Event) => void): void
}
declare var AbortSignal: {
  prototype: AbortSignal
  abort(reason?: any): AbortSignal
  timeout(ms: number): AbortSignal
  any(signals: Iterable<AbortSignal>): AbortSignal
}

interface AbortController {
  readonly signal: AbortSignal
  abort(reason?: any): void
}
declare var AbortController: { prototype: AbortController; new (): AbortController }

interface CancelToken {
  readonly token: CancelToken
  readonly signal: AbortSignal
  readonly isCancelled: boolean
  cancel(reason?: any): void
}
declare var CancelToken: { prototype: CancelToken; new (): CancelToken }

// --- text and bytes --------------------------------------------------------------------

declare function btoa(text: string): string
declare function atob(base64: string): string

interface TextEncoder {
  readonly encoding: "utf-8"
  encode(text?: string): Uint8Array
  encodeInto(text: string, into: Uint8Array): { read: number; written: number }
}
declare var TextEncoder: { prototype: TextEncoder; new (): TextEncoder }

interface TextDecoder {
  readonly encoding: "utf-8"
  readonly fatal: boolean
  readonly ignoreBOM: boolean
  decode(input?: ArrayBuffer | ArrayBufferView, options?: { stream?: boolean }): string
}
/** UTF-8 only. */
declare var TextDecoder: { prototype: TextDecoder; new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder }

interface Data {
  readonly size: number
  toRawString(): string | null
  toDecodedString(): string | null
  toBase64String(): string
  toHexString(): string
  toUint8Array(): Uint8Array
  toArrayBuffer(): ArrayBuffer
  slice(from?: number, to?: number): Data
  append(other: Data | Uint8Array | ArrayBuffer): void
}
declare var Data: {
  prototype: Data
  fromRawString(text: string): Data
  fromString(text: string): Data
  fromBase64String(text: string): Data | null
  fromHexString(text: string): Data | null
  fromUint8Array(bytes: Uint8Array): Data
  fromArrayBuffer(buffer: ArrayBuffer): Data
}

// --- addresses -------------------------------------------------------------------------

interface URLSearchParams {
  readonly size: number
  append(name: string, value: string): void
  delete(name: string, value?: string): void
  get(name: string): string | null
  getAll(name: string): string[]
  has(name: string, value?: string): boolean
  set(name: string, value: string): void
  sort(): void
  forEach(callback: (value: string, name: string, all: URLSearchParams) => void, self?: any): void
  entries(): IterableIterator<[string, string]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string>
  [Symbol.iterator](): IterableIterator<[string, string]>
  toString(): string
}
declare var URLSearchParams: {
  prototype: URLSearchParams
  new (init?: string | Record<string, string> | Iterable<[string, string]> | URLSearchParams): URLSearchParams
}

interface URL {
  href: string
  readonly origin: string
  protocol: string
  username: string
  password: string
  host: string
  hostname: string
  port: string
  pathname: string
  search: string
  hash: string
  readonly searchParams: URLSearchParams
  toString(): string
  toJSON(): string
}
declare var URL: {
  prototype: URL
  new (address: string | URL, base?: string | URL): URL
  canParse(address: string | URL, base?: string | URL): boolean
  parse(address: string | URL, base?: string | URL): URL | null
}

// --- fetch -----------------------------------------------------------------------------

type HeadersInit = Headers | Record<string, string> | Iterable<[string, string]>
type BodyInit = string | ArrayBuffer | ArrayBufferView | Data | Blob | FormData | URLSearchParams | ReadableStream

interface Headers {
  append(name: string, value: string): void
  delete(name: string): void
  get(name: string): string | null
  getSetCookie(): string[]
  has(name: string): boolean
  set(name: string, value: string): void
  forEach(callback: (value: string, name: string, all: Headers) => void, self?: any): void
  entries(): IterableIterator<[string, string]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string>
  [Symbol.iterator](): IterableIterator<[string, string]>
  toJson(): Record<string, string>
}
declare var Headers: { prototype: Headers; new (init?: HeadersInit): Headers }

interface Blob {
  readonly size: number
  readonly type: string
  text(): Promise<string>
  bytes(): Promise<Uint8Array>
  arrayBuffer(): Promise<ArrayBuffer>
  slice(from?: number, to?: number, type?: string): Blob
}
declare var Blob: { prototype: Blob; new (pieces?: any[], options?: { type?: string }): Blob }

interface File extends Blob {
  readonly name: string
  readonly lastModified: number
}
declare var File: { prototype: File; new (pieces: any[], name: string, options?: { type?: string; lastModified?: number }): File }

interface FormData {
  append(name: string, value: string | Blob | Data, filename?: string): void
  delete(name: string): void
  get(name: string): string | File | null
  getAll(name: string): (string | File)[]
  has(name: string): boolean
  set(name: string, value: string | Blob | Data, filename?: string): void
  forEach(callback: (value: string | File, name: string, all: FormData) => void, self?: any): void
  entries(): IterableIterator<[string, string | File]>
  keys(): IterableIterator<string>
  values(): IterableIterator<string | File>
  [Symbol.iterator](): IterableIterator<[string, string | File]>
}
declare var FormData: { prototype: FormData; new (): FormData }

interface ReadableStreamDefaultReader<R = any> {
  read(): Promise<{ value: R; done: false } | { value: undefined; done: true }>
  releaseLock(): void
  cancel(reason?: any): Promise<void>
}
interface ReadableStream<R = any> {
  readonly locked: boolean
  getReader(): ReadableStreamDefaultReader<R>
  cancel(reason?: any): Promise<void>
}
declare var ReadableStream: { prototype: ReadableStream; new <R = any>(source?: any, strategy?: any): ReadableStream<R> }

interface Body {
  readonly body: ReadableStream<Uint8Array> | null
  readonly bodyUsed: boolean
  text(): Promise<string>
  json(): Promise<any>
  data(): Promise<Data>
  bytes(): Promise<Uint8Array>
  arrayBuffer(): Promise<ArrayBuffer>
  blob(): Promise<Blob>
  formData(): Promise<FormData>
}

interface RequestInit {
  method?: string
  headers?: HeadersInit
  body?: BodyInit | null
  signal?: AbortSignal | null
  /** In seconds. */
  timeout?: number
  redirect?: "follow" | "error" | "manual"
  handleRedirect?: (request: Request) => Promise<Request | null>
  /** @deprecated use signal */
  cancelToken?: CancelToken
  /** @deprecated has no effect in Belay */
  allowInsecureRequest?: boolean
  /** @deprecated has no effect in Belay */
  debugLabel?: string
}
interface Request extends Body {
  readonly url: string
  readonly method: string
  readonly headers: Headers
  readonly signal: AbortSignal | null
  readonly timeout: number | undefined
  readonly redirect: string
  clone(): Request
}
declare var Request: { prototype: Request; new (input: string | URL | Request, init?: RequestInit): Request }

interface ResponseInit {
  status?: number
  statusText?: string
  headers?: HeadersInit
}
interface Response extends Body {
  readonly ok: boolean
  readonly status: number
  readonly statusText: string
  readonly headers: Headers
  readonly url: string
  readonly redirected: boolean
  readonly type: string
  readonly mimeType: string | undefined
  readonly cookies: { name: string; value: string }[]
  clone(): Response
}
declare var Response: {
  prototype: Response
  new (body?: BodyInit | null, init?: ResponseInit): Response
  json(value: unknown, init?: ResponseInit): Response
  error(): Response
}

/**
 * Asks a host that the operator of this Belay allows (allow_hosts, or --allow-host of
 * "belay tool run"); for any other the promise is rejected with a TypeError. Error
 * statuses do not reject. Only inside a call, never at the top level.
 */
declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>

// --- what the Scripting app has and Belay has not -----------------------------------------

/** A part of a device. isAvailable is false; every other use throws NotAvailableError. */
interface ScriptingUnavailable {
  readonly isAvailable: false
  (...args: any[]): any
  new (...args: any[]): any
  // Those that are called with the type of what they return.
  get<T = any>(...args: any[]): T | null
  present<T = any>(...args: any[]): Promise<T>
  evaluateJavaScript<T = any>(...args: any[]): Promise<T>
  readonly [name: string]: any
}
/** @deprecated not available in Belay */
declare var Location: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Health: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Photos: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var FileManager: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Calendar: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var CalendarEvent: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Reminder: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Contact: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Notification: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Device: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Clipboard: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Pasteboard: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Dialog: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Navigation: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Keychain: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Storage: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Speech: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Assistant: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var WebViewController: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var DocumentPicker: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var QuickLook: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var ShareSheet: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Safari: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var BLE: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var AVPlayer: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var AudioRecorder: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var MediaPlayer: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Motion: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Widget: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var LiveActivity: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Vision: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var QRCode: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var Mail: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var MessageUI: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var LocalAuth: ScriptingUnavailable
/** @deprecated not available in Belay */
declare var SQLite: ScriptingUnavailable

// --- JSX: elements are made and kept, and never shown ---------------------------------------

declare namespace JSX {
  type Element = any
  type ElementType = any
  interface ElementChildrenAttribute { children: {} }
  interface IntrinsicElements { [name: string]: any }
}

// --- import … from "scripting" ------------------------------------------------------------

declare module "scripting" {
  // The globals, by import as well.
  export const Event: typeof globalThis.Event
  export type Event = globalThis.Event
  export const DOMException: typeof globalThis.DOMException
  export type DOMException = globalThis.DOMException
  export const AbortSignal: typeof globalThis.AbortSignal
  export type AbortSignal = globalThis.AbortSignal
  export const AbortController: typeof globalThis.AbortController
  export type AbortController = globalThis.AbortController
  export const CancelToken: typeof globalThis.CancelToken
  export type CancelToken = globalThis.CancelToken
  export const TextEncoder: typeof globalThis.TextEncoder
  export type TextEncoder = globalThis.TextEncoder
  export const TextDecoder: typeof globalThis.TextDecoder
  export type TextDecoder = globalThis.TextDecoder
  export const Data: typeof globalThis.Data
  export type Data = globalThis.Data
  export const URLSearchParams: typeof globalThis.URLSearchParams
  export type URLSearchParams = globalThis.URLSearchParams
  export const URL: typeof globalThis.URL
  export type URL = globalThis.URL
  export const Headers: typeof globalThis.Headers
  export type Headers = globalThis.Headers
  export const Blob: typeof globalThis.Blob
  export type Blob = globalThis.Blob
  export const File: typeof globalThis.File
  export type File = globalThis.File
  export const FormData: typeof globalThis.FormData
  export type FormData = globalThis.FormData
  export const ReadableStream: typeof globalThis.ReadableStream
  export type ReadableStream = globalThis.ReadableStream
  export const Request: typeof globalThis.Request
  export type Request = globalThis.Request
  export const Response: typeof globalThis.Response
  export type Response = globalThis.Response
  /** @deprecated not available in Belay */
  export const Location: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Health: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Photos: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const FileManager: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Calendar: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const CalendarEvent: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Reminder: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Contact: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Notification: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Device: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Clipboard: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Pasteboard: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Dialog: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Navigation: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Keychain: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Storage: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Speech: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Assistant: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const WebViewController: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const DocumentPicker: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const QuickLook: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const ShareSheet: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Safari: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const BLE: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const AVPlayer: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const AudioRecorder: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const MediaPlayer: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Motion: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Widget: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const LiveActivity: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Vision: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const QRCode: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const Mail: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const MessageUI: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const LocalAuth: ScriptingUnavailable
  /** @deprecated not available in Belay */
  export const SQLite: ScriptingUnavailable
  export import AssistantTool = globalThis.AssistantTool
  export const Script: typeof globalThis.Script
  export const fetch: typeof globalThis.fetch
  export const console: typeof globalThis.console
  export const setTimeout: typeof globalThis.setTimeout
  export const clearTimeout: typeof globalThis.clearTimeout
  export const setInterval: typeof globalThis.setInterval
  export const clearInterval: typeof globalThis.clearInterval
  export const queueMicrotask: typeof globalThis.queueMicrotask
  export const btoa: typeof globalThis.btoa
  export const atob: typeof globalThis.atob

  export const Path: typeof globalThis.Path
  export const createElement: typeof globalThis.createElement
  export function createContext<T = any>(initial?: T): any
  export function h(type: any, props?: any, ...children: any[]): any
  export const Fragment: typeof globalThis.Fragment

  /** The type of a component of the app, which is never shown here. */
  export type FunctionComponent<P = any> = (props: P) => any
  export type VirtualNode = any

  // Components and hooks of the app, so that scripts with a view of their own pass.
  /** @deprecated Belay has no screen */
  export const VStack: any
  /** @deprecated Belay has no screen */
  export const HStack: any
  /** @deprecated Belay has no screen */
  export const ZStack: any
  /** @deprecated Belay has no screen */
  export const LazyVStack: any
  /** @deprecated Belay has no screen */
  export const LazyHStack: any
  /** @deprecated Belay has no screen */
  export const LazyVGrid: any
  /** @deprecated Belay has no screen */
  export const Grid: any
  /** @deprecated Belay has no screen */
  export const GridRow: any
  /** @deprecated Belay has no screen */
  export const Group: any
  /** @deprecated Belay has no screen */
  export const Section: any
  /** @deprecated Belay has no screen */
  export const Form: any
  /** @deprecated Belay has no screen */
  export const List: any
  /** @deprecated Belay has no screen */
  export const ForEach: any
  /** @deprecated Belay has no screen */
  export const ScrollView: any
  /** @deprecated Belay has no screen */
  export const NavigationStack: any
  /** @deprecated Belay has no screen */
  export const NavigationLink: any
  /** @deprecated Belay has no screen */
  export const NavigationSplitView: any
  /** @deprecated Belay has no screen */
  export const TabView: any
  /** @deprecated Belay has no screen */
  export const Tab: any
  /** @deprecated Belay has no screen */
  export const Text: any
  /** @deprecated Belay has no screen */
  export const Label: any
  /** @deprecated Belay has no screen */
  export const Image: any
  /** @deprecated Belay has no screen */
  export const Button: any
  /** @deprecated Belay has no screen */
  export const Link: any
  /** @deprecated Belay has no screen */
  export const Toggle: any
  /** @deprecated Belay has no screen */
  export const TextField: any
  /** @deprecated Belay has no screen */
  export const SecureField: any
  /** @deprecated Belay has no screen */
  export const TextEditor: any
  /** @deprecated Belay has no screen */
  export const Picker: any
  /** @deprecated Belay has no screen */
  export const Slider: any
  /** @deprecated Belay has no screen */
  export const Stepper: any
  /** @deprecated Belay has no screen */
  export const DatePicker: any
  /** @deprecated Belay has no screen */
  export const ColorPicker: any
  /** @deprecated Belay has no screen */
  export const ProgressView: any
  /** @deprecated Belay has no screen */
  export const Gauge: any
  /** @deprecated Belay has no screen */
  export const Divider: any
  /** @deprecated Belay has no screen */
  export const Spacer: any
  /** @deprecated Belay has no screen */
  export const Menu: any
  /** @deprecated Belay has no screen */
  export const DisclosureGroup: any
  /** @deprecated Belay has no screen */
  export const Rectangle: any
  /** @deprecated Belay has no screen */
  export const RoundedRectangle: any
  /** @deprecated Belay has no screen */
  export const Circle: any
  /** @deprecated Belay has no screen */
  export const Capsule: any
  /** @deprecated Belay has no screen */
  export const Ellipse: any
  /** @deprecated Belay has no screen */
  export const Markdown: any
  /** @deprecated Belay has no screen */
  export const SVG: any
  /** @deprecated Belay has no screen */
  export const QRImage: any
  /** @deprecated Belay has no screen */
  export const Chart: any
  /** @deprecated Belay has no screen */
  export const VideoPlayer: any
  /** @deprecated Belay has no screen */
  export const WebView: any
  /** @deprecated Belay has no screen */
  export const EmptyView: any
  /** @deprecated Belay has no screen */
  export const useState: any
  /** @deprecated Belay has no screen */
  export const useEffect: any
  /** @deprecated Belay has no screen */
  export const useMemo: any
  /** @deprecated Belay has no screen */
  export const useCallback: any
  /** @deprecated Belay has no screen */
  export const useRef: any
  /** @deprecated Belay has no screen */
  export const useReducer: any
  /** @deprecated Belay has no screen */
  export const useContext: any
  /** @deprecated Belay has no screen */
  export const useObservable: any
}
