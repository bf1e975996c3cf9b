import { expect, test, vi } from 'vitest';
import { ApiError, unreachable } from '../src/data/client';
import { reportFailure, reportSuccess } from '../src/data/connection';
import { chatStore } from '../src/pages/chat/chatStore';

const server = vi.hoisted(() => ({ isReachable: false, created: 0 }));

vi.mock('../src/config', () => ({ config: { base: '', api: '' } }));
vi.mock('../src/data/serving/chat/chats', () => ({
  createChat: () => {
    if (!server.isReachable) {
      return Promise.reject(unreachable());
    }
    server.created += 1;
    return Promise.resolve({ id: 'a', title: 'Hi', version: 1 });
  },
  refreshChats: () => Promise.resolve()
}));

test('a chat that could not be stored is stored when the connection is back', async () => {
  chatStore.save();
  await vi.waitFor(() => expect(chatStore.get().saveError).toBeInstanceOf(ApiError));
  reportFailure(unreachable());
  server.isReachable = true;
  reportSuccess();
  await vi.waitFor(() => expect(chatStore.get()).toMatchObject({ id: 'a', saveError: undefined }));
  // A further success stores nothing again.
  reportFailure(unreachable());
  reportSuccess();
  await vi.waitFor(() => expect(server.created).toBe(1));
});
