import { defined, textIn } from '../../components/list/listSearch';

/** State of the chat page in the URL. */
export interface ChatSearch {
  /** Id of the open chat. */
  chat?: string;
  /** Name of the endpoint of a new chat. */
  endpoint?: string;
}

export const readChatSearch = (search: Record<string, unknown>): ChatSearch =>
  defined({ chat: textIn(search['chat']), endpoint: textIn(search['endpoint']) });
