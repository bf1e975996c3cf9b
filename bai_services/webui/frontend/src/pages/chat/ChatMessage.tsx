import { Alert, Button, Flex, Spin, Typography } from 'antd';
import { FileTextOutlined, PictureOutlined } from '@ant-design/icons';
import { useTranslation } from 'react-i18next';
import { Tag } from '../../components/Tag';
import { visible } from '../../i18n/userText';
import { UserText } from '../../components/UserText';
import { speedOf, type Attachment, type Message } from './cards';
import { ChatMarkdown } from './markdown/ChatMarkdown';

interface ChatMessageProps {
  message: Message;
  /** Whether the answer is still arriving. */
  isRunning: boolean;
  /** Request the answer again; undefined if that is not possible. */
  onRetry: (() => void) | undefined;
}

/** A message of the user, or an answer with its tokens and its speed. */
export function ChatMessage({ message, isRunning, onRetry }: ChatMessageProps) {
  const { t } = useTranslation();
  const { role, text, attachments, error, isStopped } = message;
  const isAnswer = role === 'assistant';
  return (
    <article
      className={isAnswer ? 'bai-chat-answer' : 'bai-chat-question'}
      aria-label={t(isAnswer ? 'chat.answer' : 'chat.question')}
      aria-busy={isRunning}
    >
      {attachments.length > 0 && <Attachments attachments={attachments} />}
      <div dir="auto">
        {isAnswer ? (
          <ChatMarkdown text={text} />
        ) : (
          <div className="bai-chat-plain">{visible(text)}</div>
        )}
      </div>
      {isRunning && text === '' && <Spin size="small" aria-label={t('chat.waiting')} />}
      {error && (
        <Alert
          type="error"
          showIcon
          role="status"
          title={visible(error)}
          action={
            onRetry && (
              <Button size="small" onClick={onRetry}>
                {t('errors.retry')}
              </Button>
            )
          }
        />
      )}
      {isAnswer && !isRunning && (
        <Flex wrap gap="small" align="center" className="bai-secondary bai-chat-facts">
          {isStopped && <span>{t('chat.stopped')}</span>}
          <Figures message={message} />
          {text !== '' && (
            <Typography.Text copyable={{ text, tooltips: [t('chat.copy-answer'), ''] }} />
          )}
        </Flex>
      )}
    </article>
  );
}

const Attachments = ({ attachments }: { attachments: Attachment[] }) => (
  <Flex wrap gap={4} style={{ marginBlockEnd: 4 }}>
    {attachments.map((each, index) =>
      each.dataUrl ? (
        <img key={index} src={each.dataUrl} alt={visible(each.name)} className="bai-chat-image" />
      ) : (
        <Tag key={index}>
          {each.kind === 'image' ? <PictureOutlined /> : <FileTextOutlined />}{' '}
          <UserText text={each.name} />
        </Tag>
      )
    )}
  </Flex>
);

/** Tokens, time to the first token, and speed. */
function Figures({ message }: { message: Message }) {
  const { t, i18n } = useTranslation();
  const { inputTokens, outputTokens, firstTokenMillis, totalMillis } = message;
  const number = (value: number, digits = 0) =>
    value.toLocaleString(i18n.language, { maximumFractionDigits: digits });
  const seconds = (millis: number) =>
    new Intl.NumberFormat(i18n.language, {
      style: 'unit',
      unit: 'second',
      unitDisplay: 'short',
      maximumFractionDigits: 2
    }).format(millis / 1000);
  const speed = speedOf(message);
  const texts = [
    inputTokens !== undefined && t('chat.input-tokens', { tokens: number(inputTokens) }),
    outputTokens !== undefined && t('chat.output-tokens', { tokens: number(outputTokens) }),
    speed !== undefined && t('chat.speed', { speed: number(speed, 1) }),
    firstTokenMillis !== undefined && t('chat.first-token', { time: seconds(firstTokenMillis) }),
    totalMillis !== undefined && t('chat.total', { time: seconds(totalMillis) })
  ].filter(text => text !== false);
  return texts.length > 0 && <span>{texts.join(' · ')}</span>;
}
