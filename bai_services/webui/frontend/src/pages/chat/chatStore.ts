import { useSyncExternalStore } from 'react';
import { ApiError } from '../../data/client';
import { currentConnection, onConnection } from '../../data/connection';
import { streamAnswer } from '../../data/serving/chat/calls';
import {
  createChat,
  readChat,
  refreshChats,
  replaceCards,
  type Chat,
  type StoredCard
} from '../../data/serving/chat/chats';
import type { Endpoint } from '../../data/serving/endpoints';
import {
  cardOf,
  given,
  MAX_CARDS,
  MAX_TEXT,
  newCard,
  storedOf,
  type Attachment,
  type Card,
  type Message
} from './cards';
import { requestOf } from './request';

/** Update interval of the page while an answer arrives. */
const UPDATE_MILLIS = 80;
/** The chat was deleted or changed on another page: it is stored as a new one. */
const LOST: readonly number[] = [404, 409];

export interface ChatState {
  /** Undefined until the chat is stored. */
  id: string | undefined;
  title: string;
  cards: readonly Card[];
  /** Whether a message is sent to all cards. */
  isSynced: boolean;
  /** Why the last change is not stored. */
  saveError: Error | undefined;
  /** Whether another page changed the chat, so that the open chat was stored as a new one. */
  isCopy: boolean;
}

const newState = (cards: readonly Card[]): ChatState => ({
  id: undefined,
  title: '',
  cards,
  isSynced: true,
  saveError: undefined,
  isCopy: false
});

/** Identifies the stored chat; shared by all changes that are being stored. */
interface Identity {
  id: string | undefined;
  version: number;
}

interface Run {
  control: AbortController;
  /** Show the received part of the answer. */
  flush: () => void;
}

/** The open chat. Answers continue to arrive while the user visits another page of the web UI. */
class ChatStore {
  private state = newState([newCard()]);
  private readonly listeners = new Set<() => void>();
  private readonly running = new Map<string, Run>();
  private identity: Identity = { id: undefined, version: 0 };
  /** Changes are stored one after the other, because each change needs the version that the
   * previous change returned. */
  private saving = Promise.resolve();

  readonly get = () => this.state;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  private set(changes: Partial<ChatState>): void {
    this.state = { ...this.state, ...changes };
    this.listeners.forEach(listener => listener());
  }

  /** Show another chat. Answers in progress are stopped, and their received parts are stored. */
  private replace(identity: Identity, state: ChatState): void {
    if (this.state.cards.some(({ isRunning }) => isRunning)) {
      this.state.cards.forEach(({ key }) => this.stop(key));
      this.save();
    }
    this.identity = identity;
    this.set(state);
  }

  /** Begin a new chat, with the endpoints and models of the open one. */
  reset(): void {
    const { cards, isSynced } = this.state;
    const state = { ...newState(cards.map(card => newCard(card))), isSynced };
    this.replace({ id: undefined, version: 0 }, state);
  }

  /** Begin a new chat with an endpoint. */
  openEndpoint(endpoint: string): void {
    this.replace({ id: undefined, version: 0 }, newState([newCard({ endpoint })]));
  }

  /**
   * Open a stored chat.
   *
   * @throws ApiError if it cannot be read
   */
  async open(id: string): Promise<void> {
    if (id !== this.state.id) {
      this.show(await readChat(id));
    }
  }

  private show({ id, version, title, cards }: Chat): void {
    this.replace({ id, version }, { ...newState(cards.map(cardOf)), id, title });
  }

  /** Update the open chat after it was renamed. */
  renamed({ id, version, title }: Chat): void {
    if (id === this.identity.id) {
      this.identity.version = version;
      this.set({ title });
    }
  }

  setSynced(isSynced: boolean): void {
    this.set({ isSynced });
  }

  addCard(): void {
    const { cards } = this.state;
    if (cards.length < MAX_CARDS) {
      this.set({ cards: [...cards, newCard(cards.at(-1))] });
    }
  }

  removeCard(key: string): void {
    this.stop(key);
    const cards = this.state.cards.filter(card => card.key !== key);
    this.set({ cards: cards.length > 0 ? cards : [newCard()] });
    this.saveIfStored();
  }

  changeCard(key: string, changes: Partial<Card>): void {
    this.set({
      cards: this.state.cards.map(card => (card.key === key ? { ...card, ...changes } : card))
    });
  }

  /** Change the settings of a card, and store them. */
  configure(key: string, changes: Partial<Card>): void {
    this.changeCard(key, changes);
    this.saveIfStored();
  }

  clearCard(key: string): void {
    this.stop(key);
    this.changeCard(key, { messages: [] });
    this.saveIfStored();
  }

  stop(key: string): void {
    const run = this.running.get(key);
    if (run) {
      run.flush();
      run.control.abort();
      this.running.delete(key);
      this.changeLast(key, { isStopped: true });
      this.changeCard(key, { isRunning: false });
    }
  }

  private find(key: string): Card | undefined {
    return this.state.cards.find(card => card.key === key);
  }

  private changeLast(key: string, changes: Partial<Message>): void {
    const messages = this.find(key)?.messages ?? [];
    const last = messages.at(-1);
    if (last) {
      this.changeCard(key, { messages: [...messages.slice(0, -1), { ...last, ...changes }] });
    }
  }

  /** Send a message to a card, and let its model answer. */
  send(key: string, endpoint: Endpoint, text: string, attachments: Attachment[]): void {
    const card = this.find(key);
    if (!card || card.isRunning) {
      return;
    }
    const message: Message = { role: 'user', text, attachments };
    this.answer({ ...card, messages: [...card.messages, message] }, endpoint);
  }

  /** Replace the last answer of a card. */
  retry(key: string, endpoint: Endpoint): void {
    const card = this.find(key);
    if (card && !card.isRunning && card.messages.at(-1)?.role === 'assistant') {
      this.answer({ ...card, messages: card.messages.slice(0, -1) }, endpoint);
    }
  }

  private answer(card: Card, endpoint: Endpoint): void {
    const answer: Message = { role: 'assistant', text: '', attachments: [] };
    const run: Run = { control: new AbortController(), flush: () => undefined };
    this.running.set(card.key, run);
    this.changeCard(card.key, { messages: [...card.messages, answer], isRunning: true });
    void this.receive(card, endpoint, run).finally(() => {
      if (this.running.get(card.key) === run) {
        this.running.delete(card.key);
        this.changeCard(card.key, { isRunning: false });
      }
      if (this.find(card.key)) {
        this.save();
      }
    });
  }

  private async receive(card: Card, endpoint: Endpoint, run: Run): Promise<void> {
    const { key } = card;
    const { signal } = run.control;
    const begin = performance.now();
    const answer: Partial<Message> & { text: string } = { text: '' };
    let timer: ReturnType<typeof setTimeout> | undefined;
    run.flush = () => {
      // After a stop, the card may already have other messages.
      if (!signal.aborted) {
        const text = answer.text.slice(0, MAX_TEXT);
        this.changeLast(key, { ...answer, text, totalMillis: performance.now() - begin });
      }
    };
    try {
      for await (const part of streamAnswer(endpoint, card.basePath, requestOf(card), signal)) {
        const { text, error, inputTokens, outputTokens } = part;
        Object.assign(answer, given({ inputTokens, outputTokens }));
        if (error !== undefined) {
          throw new ApiError(0, 'endpoint', error);
        }
        if (text && answer.firstTokenMillis === undefined) {
          answer.firstTokenMillis = performance.now() - begin;
        }
        answer.text += text;
        if (answer.text.length > MAX_TEXT) {
          answer.isStopped = true;
          break;
        }
        // A timer, because the next part may arrive much later.
        timer ??= setTimeout(() => {
          timer = undefined;
          run.flush();
        }, UPDATE_MILLIS);
      }
    } catch (error) {
      answer.error = (error as Error).message || String(error);
    }
    clearTimeout(timer);
    run.flush();
  }

  private saveIfStored(): void {
    if (this.state.id !== undefined) {
      this.save();
    }
  }

  /** Store the chat; nothing happens while an answer arrives, because its end stores the chat. */
  save(): void {
    const { identity } = this;
    const { cards } = this.state;
    if (!cards.some(({ isRunning }) => isRunning)) {
      this.saving = this.saving.then(() => this.store(identity, cards.map(storedOf)));
    }
  }

  /** Store the chat again if its last change could not be stored. */
  saveUnsaved(): void {
    if (this.state.saveError) {
      this.save();
    }
  }

  private async store(identity: Identity, cards: StoredCard[]): Promise<void> {
    const { id, version } = identity;
    const show = (changes: Partial<ChatState>) => {
      // The user may have opened another chat.
      if (identity === this.identity) {
        this.set(changes);
      }
    };
    try {
      const saved =
        id === undefined ? await createChat(cards) : await replaceCards(id, version, cards);
      identity.id = saved.id;
      identity.version = saved.version;
      show({ id: saved.id, title: saved.title, saveError: undefined });
    } catch (error) {
      if (id !== undefined && error instanceof ApiError && LOST.includes(error.status)) {
        identity.id = undefined;
        show({ isCopy: true });
        await this.store(identity, cards);
        return;
      }
      show({ saveError: error as Error });
    }
    await refreshChats();
  }
}

export const chatStore = new ChatStore();
// The page lives as long as the store, so that the listener is never removed.
onConnection(() => {
  if (currentConnection().state === 'online') {
    chatStore.saveUnsaved();
  }
});

export const useChat = () => useSyncExternalStore(chatStore.subscribe, chatStore.get);
