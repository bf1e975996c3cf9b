import { useState } from 'react';
import { App, Button, Drawer, Empty, Flex, Input, List, Modal, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import {
  chatsQuery,
  useDeleteChat,
  useRenameChat,
  type ChatSummary
} from '../../data/serving/chat/chats';
import { chatStore } from './chatStore';

// MAX_TITLE in core/serving/chats.py.
const MAX_TITLE = 100;

interface HistoryProps {
  /** Id of the open chat. */
  current: string | undefined;
  onOpen: (id: string) => void;
  /** The open chat was deleted. */
  onDeleted: () => void;
  onClose: () => void;
}

/** Drawer with the user's chats. */
export function History({ current, onOpen, onDeleted, onClose }: HistoryProps) {
  const { t } = useTranslation();
  const { data: chats, error, refetch } = useQuery(chatsQuery);
  const [find, setFind] = useState('');
  const found = chats?.filter(({ title }) => title.toLowerCase().includes(find.toLowerCase()));
  return (
    <Drawer open onClose={onClose} title={t('chat.history')}>
      <p className="bai-secondary">{t('chat.history-help')}</p>
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!found && !error && <Skeleton active />}
      {chats && chats.length > 0 && (
        <Input.Search
          allowClear
          aria-label={t('chat.find')}
          placeholder={t('chat.find')}
          value={find}
          onChange={event => setFind(event.target.value)}
        />
      )}
      {found?.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('chat.no-chats')} />
      )}
      {found && found.length > 0 && (
        <List
          dataSource={found}
          rowKey="id"
          renderItem={chat => (
            <ChatItem
              chat={chat}
              isOpen={chat.id === current}
              onOpen={() => onOpen(chat.id)}
              onDeleted={onDeleted}
            />
          )}
        />
      )}
    </Drawer>
  );
}

interface ChatItemProps {
  chat: ChatSummary;
  isOpen: boolean;
  onOpen: () => void;
  onDeleted: () => void;
}

function ChatItem({ chat, isOpen, onOpen, onDeleted }: ChatItemProps) {
  const { t, i18n } = useTranslation();
  const { modal, message } = App.useApp();
  const remove = useDeleteChat();
  const [isRenaming, setRenaming] = useState(false);
  const { id, title } = chat;
  const confirm = () =>
    void modal.confirm({
      title: t('entities.delete-title', { name: title }),
      content: t('entities.delete-warning'),
      okText: t('entities.delete'),
      cancelText: t('entities.cancel'),
      okButtonProps: { danger: true },
      onOk: async () => {
        try {
          await remove.mutateAsync(id);
          if (isOpen) {
            onDeleted();
          }
        } catch (error) {
          void message.error((error as Error).message);
        }
      }
    });
  return (
    <List.Item aria-current={isOpen}>
      <Flex vertical gap={4} style={{ width: '100%' }}>
        <Button type="link" className="bai-chat-title" onClick={onOpen}>
          <UserText text={title} />
        </Button>
        <Flex wrap gap="small" align="center">
          <span className="bai-secondary">
            {formatTime(chat.updated_at, i18n.language)} ·{' '}
            {t('chat.message-count', { count: chat.messages })}
          </span>
          <Button
            size="small"
            aria-label={t('chat.rename-one', { title })}
            onClick={() => setRenaming(true)}
          >
            {t('chat.rename')}
          </Button>
          <Button
            size="small"
            danger
            aria-label={t('chat.delete-one', { title })}
            onClick={confirm}
          >
            {t('entities.delete')}
          </Button>
        </Flex>
      </Flex>
      {isRenaming && <Rename chat={chat} onClose={() => setRenaming(false)} />}
    </List.Item>
  );
}

function Rename({ chat, onClose }: { chat: ChatSummary; onClose: () => void }) {
  const { t } = useTranslation();
  const [title, setTitle] = useState(chat.title);
  const rename = useRenameChat();
  const save = () => {
    if (title.trim() === '') {
      return;
    }
    rename.mutate(
      { id: chat.id, title: title.trim() },
      {
        onSuccess: renamed => {
          chatStore.renamed(renamed);
          onClose();
        }
      }
    );
  };
  return (
    <Modal
      open
      onCancel={onClose}
      title={t('chat.rename')}
      okText={t('entities.save')}
      cancelText={t('entities.cancel')}
      okButtonProps={{ disabled: title.trim() === '' }}
      confirmLoading={rename.isPending}
      onOk={save}
    >
      {rename.error && <ErrorNotice error={rename.error} />}
      <Input
        autoFocus
        aria-label={t('chat.title')}
        maxLength={MAX_TITLE}
        value={title}
        onChange={event => setTitle(event.target.value)}
        onPressEnter={save}
      />
    </Modal>
  );
}
