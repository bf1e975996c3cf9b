import { useEffect, useRef, useState } from 'react';
import { Alert, Button, Flex, Skeleton, Switch } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { PageTitle } from '../../components/PageTitle';
import { UserText } from '../../components/UserText';
import { chatEndpointsQuery } from '../../data/serving/chat/chats';
import type { Endpoint } from '../../data/serving/endpoints';
import { Stored, useStored } from '../../data/stored';
import { MAX_CARDS, type Card } from './cards';
import { ChatCard } from './ChatCard';
import { ChatInput } from './ChatInput';
import { chatStore, useChat } from './chatStore';
import { History } from './History';

const route = getRouteApi('/chat');
const hasClosedBanner = new Stored('bai-chat-banner-closed', stored => stored === true);

/** Conversations with models of endpoints, side by side. */
export function ChatPage() {
  const { t } = useTranslation();
  const chat = useChat();
  const navigate = route.useNavigate();
  const [hasHistory, setHistory] = useState(false);
  const openError = useAddress();
  const { data: endpoints, error, refetch } = useQuery(chatEndpointsQuery);
  const { cards, isSynced, title } = chat;
  const begin = () => {
    chatStore.reset();
    void navigate({ search: {} });
  };
  const open = (id: string) => {
    setHistory(false);
    void navigate({ search: { chat: id } });
  };
  return (
    <>
      <PageTitle>
        {t('pages.chat')}
        {title && (
          <>
            {': '}
            <UserText text={title} />
          </>
        )}
      </PageTitle>
      <Banner />
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Button type="primary" onClick={begin}>
          {t('chat.new')}
        </Button>
        <Button onClick={() => setHistory(true)}>{t('chat.history')}</Button>
        <Button disabled={cards.length >= MAX_CARDS} onClick={() => chatStore.addCard()}>
          {t('chat.add-card')}
        </Button>
        {cards.length > 1 && (
          <label>
            <Switch
              size="small"
              checked={isSynced}
              onChange={checked => chatStore.setSynced(checked)}
            />{' '}
            {t('chat.synced')}
          </label>
        )}
      </Flex>
      <Notices openError={openError} />
      {error && <ErrorNotice error={error} onRetry={() => void refetch()} />}
      {!endpoints && !error && <Skeleton active />}
      {endpoints?.length === 0 && (
        <Alert type="info" showIcon style={{ marginBottom: 12 }} title={t('chat.no-endpoint')} />
      )}
      {endpoints && (
        <>
          <div className="bai-chat-cards">
            {cards.map((card, index) => (
              <ChatCard
                key={card.key}
                card={card}
                number={index + 1}
                endpoints={endpoints}
                hasInput={!isSynced || cards.length === 1}
              />
            ))}
          </div>
          {isSynced && cards.length > 1 && <SharedInput cards={cards} endpoints={endpoints} />}
        </>
      )}
      {hasHistory && (
        <History
          current={chat.id}
          onOpen={open}
          onDeleted={begin}
          onClose={() => setHistory(false)}
        />
      )}
    </>
  );
}

/**
 * Show the chat or the endpoint that the URL names, and put the id of a newly stored chat into the
 * URL. Return the error if the chat cannot be read.
 */
function useAddress(): Error | undefined {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { id } = useChat();
  const [failed, setFailed] = useState<{ chat: string; error: Error }>();
  const { chat, endpoint } = search;
  const shownId = useRef(id);
  useEffect(() => {
    if (chat) {
      chatStore.open(chat).catch((error: unknown) => setFailed({ chat, error: error as Error }));
    } else if (endpoint) {
      chatStore.openEndpoint(endpoint);
      void navigate({ search: {}, replace: true });
    }
  }, [chat, endpoint, navigate]);
  useEffect(() => {
    // The open chat was stored, or the user has returned to the page.
    if (id && !endpoint && (id !== shownId.current || !chat)) {
      void navigate({ search: { chat: id }, replace: true });
    }
    shownId.current = id;
  }, [id, chat, endpoint, navigate]);
  return failed && failed.chat === chat ? failed.error : undefined;
}

/** Explanation of the page, shown until the user closes it. */
function Banner() {
  const { t } = useTranslation();
  if (useStored(hasClosedBanner)) {
    return null;
  }
  return (
    <Alert
      type="info"
      showIcon
      style={{ marginBottom: 12 }}
      title={t('chat.banner')}
      closable={{
        closeIcon: true,
        'aria-label': t('chat.close-banner'),
        onClose: () => hasClosedBanner.set(true)
      }}
    />
  );
}

function Notices({ openError }: { openError: Error | undefined }) {
  const { t } = useTranslation();
  const { saveError, isCopy } = useChat();
  return (
    <>
      {openError && <ErrorNotice error={openError} />}
      {isCopy && (
        <Alert
          type="warning"
          showIcon
          role="status"
          style={{ marginBottom: 12 }}
          title={t('chat.is-copy')}
        />
      )}
      {saveError && (
        <Alert
          type="error"
          showIcon
          style={{ marginBottom: 12 }}
          title={t('chat.not-saved')}
          description={saveError.message}
          action={<Button onClick={() => chatStore.save()}>{t('errors.retry')}</Button>}
        />
      )}
    </>
  );
}

interface SharedInputProps {
  cards: readonly Card[];
  endpoints: readonly Endpoint[];
}

/** One input for all cards that have a model. */
function SharedInput({ cards, endpoints }: SharedInputProps) {
  const ready = cards.flatMap(card => {
    const endpoint = endpoints.find(({ name }) => name === card.endpoint);
    return endpoint && card.model ? [{ card, endpoint }] : [];
  });
  return (
    <ChatInput
      isRunning={ready.some(({ card }) => card.isRunning)}
      isDisabled={ready.length === 0}
      onSend={(text, files) =>
        ready.forEach(({ card, endpoint }) => chatStore.send(card.key, endpoint, text, files))
      }
      onStop={() => ready.forEach(({ card }) => chatStore.stop(card.key))}
    />
  );
}
