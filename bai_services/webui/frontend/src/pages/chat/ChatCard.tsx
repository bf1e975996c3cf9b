import { useEffect, useRef, useState } from 'react';
import { Alert, App, Button, Dropdown, Empty, Flex, Select } from 'antd';
import { InfoCircleOutlined, MoreOutlined, SettingOutlined } from '@ant-design/icons';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ApiError } from '../../data/client';
import { modelsQuery } from '../../data/serving/chat/chats';
import type { Endpoint } from '../../data/serving/endpoints';
import { visible } from '../../i18n/userText';
import { urlOf } from '../endpoints/endpoints';
import { CardSettings } from './CardSettings';
import type { Card } from './cards';
import { ChatInput } from './ChatInput';
import { ChatMessage } from './ChatMessage';
import { chatStore } from './chatStore';
import { chatCurlOf, chatPythonOf } from './request';
import { onMenuKeyDown } from '../../components/menuKeys';

interface ChatCardProps {
  card: Card;
  /** Number of the card on the page, from 1. */
  number: number;
  endpoints: readonly Endpoint[];
  hasInput: boolean;
}

/** A conversation with one model. */
export function ChatCard({ card, number, endpoints, hasInput }: ChatCardProps) {
  const { t } = useTranslation();
  const { key } = card;
  const endpoint = endpoints.find(({ name }) => name === card.endpoint);
  return (
    <section className="bai-chat-card" aria-label={t('chat.card', { number })}>
      <CardHead card={card} endpoint={endpoint} endpoints={endpoints} />
      <Messages card={card} endpoint={endpoint} />
      {hasInput && (
        <ChatInput
          isRunning={card.isRunning}
          isDisabled={!endpoint || !card.model}
          onSend={(text, files) => endpoint && chatStore.send(key, endpoint, text, files)}
          onStop={() => chatStore.stop(key)}
        />
      )}
    </section>
  );
}

interface CardHeadProps {
  card: Card;
  endpoint: Endpoint | undefined;
  endpoints: readonly Endpoint[];
}

function CardHead({ card, endpoint, endpoints }: CardHeadProps) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const [isConfiguring, setConfiguring] = useState(false);
  const { key } = card;
  const copy = async (text: string) => {
    try {
      // This fails without HTTPS, because browsers then give pages no clipboard.
      await navigator.clipboard.writeText(text);
      void message.success(t('chat.copied'));
    } catch {
      void message.error(t('chat.copy-failed'));
    }
  };
  const names = endpoints.map(({ name }) => name);
  const offered = card.endpoint && !endpoint ? [card.endpoint, ...names] : names;
  return (
    <>
      <Flex wrap gap="small">
        <Select
          showSearch
          aria-label={t('chat.endpoint')}
          placeholder={t('chat.endpoint')}
          className="bai-chat-select"
          value={card.endpoint || null}
          options={offered.map(name => ({ value: name, label: name }))}
          notFoundContent={t('chat.no-endpoint')}
          onChange={(name: string) => chatStore.configure(key, { endpoint: name, model: '' })}
        />
        <ModelSelect card={card} endpoint={endpoint} />
        <Flex gap={4}>
          {endpoint && (
            <Link to="/endpoints" search={{ item: endpoint.id }}>
              <Button
                icon={<InfoCircleOutlined />}
                aria-label={t('chat.show-endpoint')}
                title={t('chat.show-endpoint')}
                tabIndex={-1}
              />
            </Link>
          )}
          <Button
            icon={<SettingOutlined />}
            aria-label={t('chat.settings')}
            title={t('chat.settings')}
            onClick={() => setConfiguring(true)}
          />
          <Dropdown
            autoFocus
            trigger={['click']}
            menu={{
              onKeyDown: onMenuKeyDown,
              items: [
                {
                  key: 'curl',
                  label: t('chat.copy-curl'),
                  disabled: !endpoint,
                  onClick: () => endpoint && void copy(chatCurlOf(urlOf(endpoint), card))
                },
                {
                  key: 'python',
                  label: t('chat.copy-python'),
                  disabled: !endpoint,
                  onClick: () => endpoint && void copy(chatPythonOf(urlOf(endpoint), card))
                },
                { type: 'divider' },
                {
                  key: 'clear',
                  label: t('chat.clear'),
                  onClick: () => chatStore.clearCard(key)
                },
                {
                  key: 'remove',
                  label: t('chat.remove-card'),
                  danger: true,
                  onClick: () => chatStore.removeCard(key)
                }
              ]
            }}
          >
            <Button icon={<MoreOutlined />} aria-label={t('chat.more')} title={t('chat.more')} />
          </Dropdown>
        </Flex>
      </Flex>
      {card.endpoint && !endpoint && (
        <Alert type="warning" showIcon role="status" title={t('chat.not-offered')} />
      )}
      {endpoint?.ready_replicas === 0 && (
        <Alert type="info" showIcon role="status" title={t('chat.starts-first')} />
      )}
      {isConfiguring && (
        <CardSettings
          card={card}
          onChange={changes => chatStore.configure(key, changes)}
          onClose={() => setConfiguring(false)}
        />
      )}
    </>
  );
}

/** The models of the endpoint; the first one is selected. */
function ModelSelect({ card, endpoint }: { card: Card; endpoint: Endpoint | undefined }) {
  const { t } = useTranslation();
  const { key, model, basePath } = card;
  const { data: models, error, isFetching, refetch } = useQuery(modelsQuery(endpoint, basePath));
  const first = models?.[0];
  useEffect(() => {
    if (!model && first) {
      chatStore.changeCard(key, { model: first });
    }
  }, [key, model, first]);
  const offered = models ?? [];
  const names = model && !offered.includes(model) ? [model, ...offered] : offered;
  return (
    <>
      <Select
        showSearch
        aria-label={t('chat.model')}
        placeholder={t('chat.model')}
        className="bai-chat-select"
        loading={isFetching}
        disabled={!endpoint || isFetching}
        value={model || null}
        options={names.map(name => ({ value: name, label: visible(name) }))}
        onChange={(name: string) => chatStore.configure(key, { model: name })}
      />
      {error && endpoint && !isFetching && (
        <Alert
          type="warning"
          showIcon
          role="status"
          style={{ flexBasis: '100%' }}
          title={t(isUnavailable(error) ? 'chat.models-unavailable' : 'chat.no-models')}
          description={visible(error.message)}
          action={
            <Button size="small" onClick={() => void refetch()}>
              {t('errors.retry')}
            </Button>
          }
        />
      )}
    </>
  );
}

/** Whether no model server has answered. */
const isUnavailable = (error: Error) =>
  error instanceof ApiError && (error.status >= 500 || error.isUnreachable);

/** How near to the end a reader must be for the list to follow new text. */
const NEAR_PIXELS = 60;

function Messages({ card, endpoint }: { card: Card; endpoint: Endpoint | undefined }) {
  const { t } = useTranslation();
  const { key, messages, isRunning } = card;
  const list = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const lastTop = useRef(0);
  useEffect(() => {
    const element = list.current;
    if (!element) {
      return;
    }
    const follow = () => {
      if (isAtEnd.current) {
        element.scrollTop = element.scrollHeight;
        lastTop.current = element.scrollTop;
      }
    };
    // Show the message that the user has just sent.
    isAtEnd.current = true;
    const observer = new ResizeObserver(follow);
    [...element.children].forEach(child => observer.observe(child));
    follow();
    return () => observer.disconnect();
  }, [messages.length]);
  return (
    <div
      ref={list}
      className="bai-chat-messages"
      role="log"
      aria-label={t('chat.messages')}
      tabIndex={0}
      onScroll={({ currentTarget: element }) => {
        const left = element.scrollHeight - element.scrollTop - element.clientHeight;
        // The list may have grown since `follow`; only the user scrolls up.
        if (left < NEAR_PIXELS || element.scrollTop < lastTop.current) {
          isAtEnd.current = left < NEAR_PIXELS;
        }
        lastTop.current = element.scrollTop;
      }}
    >
      {messages.length === 0 && (
        <Empty image={Empty.PRESENTED_IMAGE_SIMPLE} description={t('chat.empty')} />
      )}
      {messages.map((message, index) => {
        const isLast = index === messages.length - 1;
        return (
          <ChatMessage
            key={index}
            message={message}
            isRunning={isRunning && isLast}
            onRetry={
              isLast && endpoint && !isRunning ? () => chatStore.retry(key, endpoint) : undefined
            }
          />
        );
      })}
    </div>
  );
}
